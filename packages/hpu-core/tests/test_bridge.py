"""The seam to the bridge: what it loads, when, and how absence is said."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from hpu_core import bridge

if TYPE_CHECKING:
    from conftest import FakeBridge


_FAKE_BRIDGE = Path(__file__).parent / "fake_bridge"


@pytest.fixture
def absent_bridge(no_bridge: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nothing called habana_frameworks can be imported."""
    monkeypatch.setitem(sys.modules, "habana_frameworks", None)


def _install_bridge(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Install a bridge that runs `source` when it is imported."""
    package = folder / "habana_frameworks" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("fake_bridge")
def test_a_bridge_that_is_only_installed_is_not_loaded() -> None:
    """Looking for the bridge does not import it."""
    installed = bridge.is_installed()

    assert (installed, bridge.is_loaded()) == (True, False)


@pytest.mark.usefixtures("fake_bridge")
def test_load_returns_the_bridge() -> None:
    """After `load`, the bridge is loaded and returned."""
    module = bridge.load()

    assert (module.__name__, bridge.is_loaded()) == ("habana_frameworks.torch", True)


@pytest.mark.usefixtures("absent_bridge")
def test_an_absent_bridge_is_not_installed() -> None:
    """Without a bridge, looking for it answers no and does not raise."""
    assert bridge.is_installed() is False


@pytest.mark.usefixtures("absent_bridge")
def test_a_loaded_bridge_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has imported is there, wherever it came from."""
    monkeypatch.setitem(sys.modules, "habana_frameworks.torch", ModuleType("habana_frameworks.torch"))

    assert bridge.is_installed() is True


@pytest.mark.usefixtures("absent_bridge")
@pytest.mark.parametrize("call", [bridge.load, bridge.mark_step, bridge.is_lazy, bridge.open_device])
def test_absence_is_one_sentence_with_what_to_do(call: Callable[[], object]) -> None:
    """What needs the bridge says what is missing, where it comes from, and the way without a card."""
    with pytest.raises(ModuleNotFoundError, match=r"bridge .* is not installed.*Intel's PyTorch image.*hpu-sim run"):
        call()


@pytest.mark.usefixtures("no_bridge")
@pytest.mark.parametrize("source", ["assert False, 'torch 2.5 wanted'", "raise OSError('torch 2.5 wanted')"])
def test_a_bridge_that_fails_says_why(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that cannot be imported is told apart from one that is absent."""
    _install_bridge(tmp_path, monkeypatch, source)

    with pytest.raises(
        ImportError, match=r"is installed \(unknown version\) but cannot be imported: \w+: torch 2.5 wanted"
    ) as raised:
        bridge.load()

    assert not isinstance(raised.value, ModuleNotFoundError)


@pytest.mark.usefixtures("no_bridge")
def test_a_bridge_that_misses_a_module_is_not_called_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bridge itself fails to import is named."""
    _install_bridge(tmp_path, monkeypatch, "import no_such_library")

    with pytest.raises(ImportError, match="cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"):
        bridge.load()


@pytest.mark.usefixtures("fake_bridge")
def test_loading_leaves_no_rendezvous_behind() -> None:
    """The address that the bridge's import sets for every process is taken back."""
    bridge.load()

    assert not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ)


@pytest.mark.usefixtures("fake_bridge")
def test_loading_keeps_the_users_rendezvous() -> None:
    """An address that the user set stays."""
    os.environ["MASTER_PORT"] = "29500"

    bridge.load()

    assert os.environ["MASTER_PORT"] == "29500"


# What a process that was started with {first} sees of MASTER_ADDR and MASTER_PORT, once somebody has imported the
# bridge and hpu_core has been asked to forget.
_AFTER_AUTOLOAD = """
import os, sys
sys.path.insert(0, {folder!r})
import habana_frameworks.torch
from hpu_core import bridge
bridge.clear_default_rendezvous_env()
print(os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
"""


@pytest.mark.parametrize(
    ("started_with", "left"),
    [
        ({}, "None None"),
        ({"MASTER_PORT": "12345"}, "None 12345"),
        ({"MASTER_ADDR": "localhost"}, "localhost None"),
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29411"}, "10.0.0.1 29411"),
    ],
    ids=["nothing", "the same port", "the same address", "others"],
)
@pytest.mark.usefixtures("environment")
def test_the_rendezvous_of_an_autoloaded_bridge_is_forgotten(started_with: dict[str, str], left: str) -> None:
    """What the bridge set goes, and what the process was started with stays, though it be the very same."""
    program = _AFTER_AUTOLOAD.format(folder=str(_FAKE_BRIDGE))
    environment = {**os.environ, **started_with, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == left


@pytest.mark.usefixtures("no_bridge")
def test_without_a_bridge_the_rendezvous_is_the_users() -> None:
    """Where no bridge has been imported, nobody but the user can have set it."""
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="12345")

    bridge.clear_default_rendezvous_env()

    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("localhost", "12345")


@pytest.mark.usefixtures("fake_bridge")
def test_where_the_system_does_not_tell_the_bridge_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc the bridge's own pair counts as set by the bridge."""
    bridge.load()
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="12345")

    def unreadable(path: Path) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_bytes", unreadable)
    bridge.clear_default_rendezvous_env()

    assert not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ)


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(("value", "lazy"), [("1", True), ("0", False)])
def test_is_lazy_is_the_bridges_answer(value: str, lazy: bool) -> None:
    """The bridge tells the mode."""
    os.environ["PT_HPU_LAZY_MODE"] = value

    assert bridge.is_lazy() is lazy


def test_mark_step_reaches_the_bridge(fake_bridge: "FakeBridge") -> None:
    """`mark_step` is the bridge's, which ignores it in eager mode."""
    bridge.mark_step()

    assert fake_bridge.core.marks == 1


@pytest.mark.usefixtures("fake_bridge")
def test_nothing_is_to_be_marked_in_eager_mode() -> None:
    """In eager mode there is no function to call per step."""
    assert bridge.mark_step_if_lazy() is None


def test_the_bridges_own_function_is_marked_with_in_lazy_mode(fake_bridge: "FakeBridge") -> None:
    """In lazy mode the caller gets the bridge's function itself, with no layer in between."""
    os.environ["PT_HPU_LAZY_MODE"] = "1"

    assert bridge.mark_step_if_lazy() is fake_bridge.core.mark_step


@pytest.mark.usefixtures("fake_bridge")
def test_the_cards_are_counted() -> None:
    """The number of cards is the bridge's."""
    assert bridge.device_count() == 8


@pytest.mark.usefixtures("fake_bridge")
def test_the_generation_is_the_device_types_name() -> None:
    """The enum's member synDeviceGaudi2 stands for "GAUDI2"."""
    assert bridge.generation() == "GAUDI2"


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    "ask",
    [
        bridge.load,
        bridge.load_hccl,
        bridge.is_lazy,
        bridge.mark_step,
        bridge.device_count,
        bridge.generation,
        bridge.is_fp16_supported,
        bridge.hmp,
        bridge.set_inference_env,
    ],
)
def test_what_a_launcher_asks_opens_no_card(ask: Callable[[], object]) -> None:
    """Loading the bridge, counting cards and telling their generation leave the card closed."""
    ask()

    assert not bridge.is_open()


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (bridge.open_device, None),
        (bridge.synchronize, None),
        (bridge.device_name, "GAUDI2"),
        (bridge.memory_stats, {"Limit": 1000, "InUse": 10, "MaxInUse": 20}),
    ],
)
def test_what_works_on_the_card_opens_it(ask: Callable[[], object], answer: object) -> None:
    """These four are documented to open the card."""
    assert ask() == answer
    assert bridge.is_open()


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    ("name", "counted"), [("graph_compilation", {"TotalNumber": 3, "TotalTime": 70}), ("no_such_thing", {})]
)
def test_metrics_are_told_by_name(name: str, counted: dict[str, object]) -> None:
    """An unknown one has nothing to tell."""
    assert bridge.metric(name) == counted


@pytest.mark.usefixtures("no_bridge")
def test_no_card_is_open_without_a_bridge() -> None:
    """A process that never imported the bridge has no card, and asking does not import it."""
    assert not bridge.is_open()
    assert not bridge.is_loaded()


def test_a_taken_card_is_said_with_the_bridges_words(
    fake_bridge: "FakeBridge", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge's status code stays readable, and what to look at is added."""
    failure = "synStatus=20 [Device already acquired] Device acquire failed."
    monkeypatch.setattr(fake_bridge.hpu, "failure", failure)

    with pytest.raises(RuntimeError, match=r"no Gaudi card could be opened: synStatus=20 .*hpu-info.*hl-smi"):
        bridge.open_device()


@pytest.mark.usefixtures("fake_bridge")
def test_a_bridge_without_the_mark_is_no_simulator() -> None:
    """Only a bridge that says so is simulated."""
    bridge.load()

    assert not bridge.is_simulated()


@pytest.mark.usefixtures("fake_bridge")
def test_the_simulator_is_known_by_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator marks its module."""
    monkeypatch.setattr(bridge.load(), "__simulated__", True, raising=False)

    assert bridge.is_simulated()


@pytest.mark.usefixtures("no_bridge")
def test_the_version_is_the_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is read from the metadata, because old bridges have no `__version__`."""
    metadata = tmp_path / "habana_torch_plugin-1.19.0.561.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: habana-torch-plugin\nVersion: 1.19.0.561\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert bridge.plugin_version() == "1.19.0.561"


@pytest.mark.usefixtures("fake_bridge")
def test_without_metadata_the_loaded_bridge_tells_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that runs from a source tree has no metadata."""
    monkeypatch.setattr(bridge.load(), "__version__", "1.22.0", raising=False)

    assert bridge.plugin_version() == "1.22.0"


@pytest.mark.usefixtures("fake_bridge")
def test_a_bridge_that_tells_no_version_has_none() -> None:
    """Without metadata and without `__version__` the version is unknown."""
    bridge.load()

    assert bridge.plugin_version() is None


@pytest.mark.usefixtures("fake_bridge")
def test_distributed_set_up_returns_what_the_bridge_says() -> None:
    """World size, rank and local rank come back as ints."""
    assert bridge.initialize_distributed(4, 3, 1) == (4, 3, 1)


@pytest.mark.usefixtures("fake_bridge")
def test_fp16_is_as_the_bridge_says() -> None:
    """The bridge tells whether its cards compute in float16."""
    assert bridge.is_fp16_supported() is True


@pytest.mark.usefixtures("fake_bridge")
def test_a_bridge_without_hmp_gives_none() -> None:
    """Bridges from 1.13 on have no HMP."""
    assert bridge.hmp() is None


def _bridge_with(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str) -> None:
    """Install a bridge with one module below `habana_frameworks.torch.hpex`, which runs `source`."""
    _install_bridge(folder, monkeypatch, "")
    path = folder / "habana_frameworks" / "torch" / "hpex" / f"{module}.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)


@pytest.mark.usefixtures("no_bridge")
def test_hmp_comes_without_the_announcement_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bridge has HMP it is returned, and its warning is kept from those who do not name it."""
    source = "import warnings; warnings.warn('HMP will be removed', DeprecationWarning)"
    _bridge_with(tmp_path, monkeypatch, "hmp", source)

    hmp = bridge.hmp()

    assert hmp is not None
    assert hmp.__name__ == "habana_frameworks.torch.hpex.hmp"


@pytest.mark.usefixtures("no_bridge")
def test_an_hpex_without_hmp_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Current bridges have the package that HMP was in, and not HMP."""
    _bridge_with(tmp_path, monkeypatch, "optimizers", "")

    assert bridge.hmp() is None


@pytest.mark.usefixtures("no_bridge")
def test_a_missing_transformer_engine_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for fp8 learns what is missing, though the bridge is there."""
    _bridge_with(tmp_path, monkeypatch, "experimental/transformer_engine", "import intel_transformer_engine")

    with pytest.raises(ModuleNotFoundError, match=r"transformer engine, which .* No module named 'intel_transformer_e"):
        bridge.transformer_engine()


@pytest.mark.usefixtures("no_bridge")
def test_the_transformer_engine_is_the_bridges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bridge has one, its module is returned."""
    _bridge_with(tmp_path, monkeypatch, "experimental/transformer_engine", "answer = 42")

    assert bridge.transformer_engine().answer == 42


@pytest.mark.usefixtures("no_bridge")
@pytest.mark.parametrize("name", ["hpu_set_env", "hpu_inference_set_env"])
def test_inference_is_set_up_by_the_name_that_the_bridge_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old bridges know one name, later ones another."""
    _install_bridge(tmp_path, monkeypatch, "")
    core = tmp_path / "habana_frameworks" / "torch" / "core.py"
    core.write_text(f"calls = []\n\ndef {name}():\n    calls.append(1)\n")

    bridge.set_inference_env()

    assert sys.modules["habana_frameworks.torch.core"].calls == [1]


def test_scales_are_marked_as_constants(fake_bridge: "FakeBridge") -> None:
    """The bridge gets the module, and the word that only its scales are constants."""
    module = object()

    bridge.initialize_inference(module)

    assert fake_bridge.core.initialized == [(module, True)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB"), True),
        (RuntimeError("HPU out of memory (simulated): tried to allocate 8 bytes with 0 of 4 bytes in use."), True),
        (RuntimeError("CUDA out of memory."), False),
        (ValueError("HPU out of memory"), False),
    ],
)
def test_a_full_memory_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    """By the text of the bridge, or of the simulator."""
    assert bridge.is_out_of_memory(error) is expected
