"""Tests of the interface to the bridge."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from hpu_core import bridge

if TYPE_CHECKING:
    from conftest import FakeBridge


@pytest.fixture
def absent_bridge(no_bridge: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which habana_frameworks cannot be imported."""
    monkeypatch.setitem(sys.modules, "habana_frameworks", None)


def _install_bridge(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Install a bridge that runs `source` on import."""
    package = folder / "habana_frameworks" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("fake_bridge")
def test_is_installed_does_not_load() -> None:
    before = (bridge.is_installed(), bridge.is_loaded(), bridge.is_open())
    module = bridge.load()

    assert before == (True, False, False)
    assert (module.__name__, bridge.is_loaded(), bridge.plugin_version()) == ("habana_frameworks.torch", True, None)


@pytest.mark.usefixtures("absent_bridge")
def test_missing_bridge_is_not_installed_unless_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bridge.is_installed()
    monkeypatch.setitem(sys.modules, "habana_frameworks.torch", ModuleType("habana_frameworks.torch"))

    assert (before, bridge.is_installed()) == (False, True)


@pytest.mark.usefixtures("absent_bridge")
@pytest.mark.parametrize("call", [bridge.load, bridge.mark_step, bridge.is_lazy, bridge.open_device])
def test_error_without_bridge_has_remedies(call: Callable[[], object]) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"bridge .* is not installed.*Intel's PyTorch image.*hpu-sim run"):
        call()


@pytest.mark.usefixtures("no_bridge")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("assert False, 'torch 2.5 required'", "AssertionError: torch 2.5 required"),
        ("raise OSError('torch 2.5 required')", "OSError: torch 2.5 required"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
    ],
)
def test_error_of_broken_bridge_has_reason(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_bridge(tmp_path, monkeypatch, source)

    with pytest.raises(
        ImportError, match=rf"is installed \(unknown version\) but cannot be imported: {reason}"
    ) as raised:
        bridge.load()

    assert not isinstance(raised.value, ModuleNotFoundError)


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(("value", "lazy"), [("1", True), ("0", False)])
def test_is_lazy(value: str, lazy: bool) -> None:
    os.environ["PT_HPU_LAZY_MODE"] = value

    assert bridge.is_lazy() is lazy


def _bridge_config() -> Any:
    return importlib.import_module("habana_frameworks.torch.internal.bridge_config")


@pytest.mark.usefixtures("fake_bridge")
def test_compile_only_sets_the_flag() -> None:
    with bridge.compile_only() as supported:
        inside = dict(_bridge_config().flags)

    assert supported is True
    assert inside == {"PT_COMPILE_ONLY_MODE": True}
    assert _bridge_config().flags == {"PT_COMPILE_ONLY_MODE": False}


@pytest.mark.usefixtures("fake_bridge")
def test_compile_only_has_no_effect_without_the_flag() -> None:
    """Older bridges raise a KeyError."""
    _bridge_config().flags.clear()

    with bridge.compile_only() as supported:
        assert supported is False


def test_graphs_of_a_module_are_those_of_the_bridge(fake_bridge: "FakeBridge") -> None:
    os.environ["PT_HPU_LAZY_MODE"] = "1"
    module = object()

    bridge.cache_hpu_graphs(module, max_graphs=3, have_grad_accumulation=True)
    bridge.wrap_in_hpu_graph(module, max_graphs=4)

    assert fake_bridge.hpu.calls == [
        (
            "ModuleCacher",
            {
                "max_graphs": 3,
                "model": module,
                "inplace": True,
                "allow_unused_input": False,
                "have_grad_accumulation": True,
                "disable_tensor_cache": False,
            },
        ),
        ("wrap_in_hpu_graph", {"module": module, "disable_tensor_cache": False, "max_graphs": 4}),
    ]


@pytest.mark.usefixtures("fake_bridge")
def test_graphs_need_lazy_mode() -> None:
    with pytest.raises(RuntimeError, match=r"needs lazy mode \(PT_HPU_LAZY_MODE=1\); use torch.compile"):
        bridge.wrap_in_hpu_graph(object())


def test_mark_step_if_lazy_is_function_of_bridge(fake_bridge: "FakeBridge") -> None:
    """No wrapper adds time to each step. It is None in eager mode."""
    before = bridge.mark_step_if_lazy()
    os.environ["PT_HPU_LAZY_MODE"] = "1"

    assert before is None
    assert bridge.mark_step_if_lazy() is fake_bridge.core.mark_step


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (bridge.device_count, (), 8),
        # The enum member is synDeviceGaudi2.
        (bridge.generation, (), "GAUDI2"),
        (bridge.initialize_distributed, (4, 3, 1), (4, 3, 1)),
        (bridge.is_fp16_supported, (), True),
        (bridge.optional_module, ("no_package.no_module",), None),
    ],
)
def test_function_returns_what_the_bridge_does(
    function: Callable[..., object], arguments: tuple[object, ...], expected: object
) -> None:
    assert function(*arguments) == expected


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    "function",
    [
        bridge.load,
        bridge.load_hccl,
        bridge.is_lazy,
        bridge.mark_step,
        bridge.device_count,
        bridge.generation,
        bridge.is_fp16_supported,
        bridge.set_inference_env,
    ],
)
def test_functions_for_launchers_open_no_device(function: Callable[[], object]) -> None:
    function()

    assert not bridge.is_open()


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    ("function", "result"),
    [
        (bridge.open_device, None),
        (bridge.synchronize, None),
        (bridge.memory_stats, {"Limit": 1000, "InUse": 10, "MaxInUse": 20}),
    ],
)
def test_functions_that_open_the_device(function: Callable[[], object], result: object) -> None:
    assert function() == result
    assert bridge.is_open()


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    ("name", "values"), [("graph_compilation", {"TotalNumber": 3, "TotalTime": 70}), ("no_such_thing", {})]
)
def test_metric(name: str, values: dict[str, object]) -> None:
    """A metric that the bridge does not have is empty."""
    assert bridge.metric(name) == values


@pytest.mark.parametrize(
    ("is_simulated", "message"),
    [
        (False, r"no Gaudi card could be opened: synStatus=20 .*hpu-info.*hl-smi"),
        (True, r"until it exits; more simulated cards are `hpu-sim run --devices N`"),
    ],
)
def test_error_of_busy_device(
    is_simulated: bool, message: str, fake_bridge: "FakeBridge", monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = "synStatus=20 [Device already acquired] Device acquire failed."
    monkeypatch.setattr(fake_bridge.hpu, "failure", failure)
    monkeypatch.setattr(bridge.load(), "__simulated__", is_simulated, raising=False)

    with pytest.raises(RuntimeError, match=message):
        bridge.open_device()


@pytest.mark.usefixtures("no_bridge")
def test_plugin_version_from_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bridges up to 1.19 have no `__version__`."""
    metadata = tmp_path / "habana_torch_plugin-1.19.0.561.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: habana-torch-plugin\nVersion: 1.19.0.561\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert bridge.plugin_version() == "1.19.0.561"


def _bridge_with(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str) -> None:
    """Install a bridge with a module below `habana_frameworks.torch.hpex` that runs `source`."""
    _install_bridge(folder, monkeypatch, "")
    path = folder / "habana_frameworks" / "torch" / "hpex" / f"{module}.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)


@pytest.mark.usefixtures("no_bridge")
def test_load_media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The media loader is a wheel of its own, which an installed bridge may lack."""
    _install_bridge(tmp_path, monkeypatch, "")
    with pytest.raises(ModuleNotFoundError, match="mediapipe"):
        bridge.load_media("fn")
    folder = tmp_path / "habana_frameworks" / "mediapipe"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "fn.py").write_text("answer = 42")
    importlib.invalidate_caches()

    assert bridge.load_media("fn").answer == 42


@pytest.mark.usefixtures("no_bridge")
def test_optional_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transformer engine imports a package of its own, which may be missing."""
    _bridge_with(tmp_path, monkeypatch, "hmp", "")
    engine = tmp_path / "habana_frameworks/torch/hpex/experimental/transformer_engine.py"
    engine.parent.mkdir()
    engine.write_text("import intel_transformer_engine")

    assert bridge.optional_module("hpex.hmp") is not None
    assert bridge.optional_module("hpex.optimizers") is None
    with pytest.raises(ModuleNotFoundError, match=r"transformer engine, which .* No module named 'intel_transformer_e"):
        bridge.transformer_engine()
    monkeypatch.setitem(sys.modules, "intel_transformer_engine", ModuleType("intel_transformer_engine"))
    assert bridge.transformer_engine().__name__.endswith(".transformer_engine")


@pytest.mark.usefixtures("no_bridge")
@pytest.mark.parametrize("name", ["hpu_set_env", "hpu_inference_set_env"])
def test_set_inference_env_by_either_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install_bridge(tmp_path, monkeypatch, "")
    core = tmp_path / "habana_frameworks" / "torch" / "core.py"
    core.write_text(f"calls = []\n\ndef {name}():\n    calls.append(1)\n")

    bridge.set_inference_env()

    assert sys.modules["habana_frameworks.torch.core"].calls == [1]


def test_initialize_inference(fake_bridge: "FakeBridge") -> None:
    module = object()

    bridge.initialize_inference(module)

    assert fake_bridge.core.initialized == [(module, True)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB"), True),
        (RuntimeError("FATAL ERROR :: MODULE:PT_SYNHELPER workspace Allocation of size ::6442450944 failed!"), True),
        (RuntimeError("HPU out of memory (simulated): tried to allocate 8 bytes with 0 of 4 bytes in use."), True),
        (RuntimeError("CUDA out of memory."), False),
        (ValueError("HPU out of memory"), False),
    ],
)
def test_is_out_of_memory(error: Exception, expected: bool) -> None:
    assert bridge.is_out_of_memory(error) is expected


def _function_of(module: str) -> Any:
    """Return a function that is defined in a module of a name, and says that it is torch's."""
    namespace: dict[str, Any] = {"__name__": module}
    exec("def save(): pass", namespace)  # noqa: S102 - a constant.
    namespace["save"].__module__ = "torch.serialization"
    return namespace["save"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [("habana_frameworks.torch.core.torch_overwrites", True), ("habana_frameworks_of_ours", False), ("torch", False)],
)
def test_functions_of_the_bridge_are_recognized(module: str, expected: bool) -> None:
    assert bridge.is_own_function(_function_of(module)) is expected


def test_a_card_in_reset_is_tried_again(fake_bridge: "FakeBridge", monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver resets a card whose process was killed."""
    monkeypatch.setattr(fake_bridge.hpu, "failure", "synStatus=20")
    monkeypatch.setattr("time.sleep", lambda _: monkeypatch.setattr(fake_bridge.hpu, "failure", None))
    bridge.open_device(lambda: True)

    assert bridge.is_open()
