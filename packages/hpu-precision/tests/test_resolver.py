"""Tests of the plugins' arguments, with a faked machine without a bridge."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

import hpu_core
from hpu_core import bridge, frameworks
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin, OpLists, default_op_lists

_has_half = pytest.mark.skipif(
    frameworks.current().version < Version("2.1"), reason="Requires: Lightning 2.1 for half precision"
)

Make = Callable[..., Any]


class _Scaler:
    """Stand-in for torch.amp.GradScaler, which torch before 2.3 does not have."""

    def __init__(self, device: str, init_scale: float = 2.0**16) -> None:
        self._scale = init_scale

    def state_dict(self) -> dict[str, float]:
        return {"scale": self._scale}


@pytest.fixture(params=[HPUPrecisionPlugin, FabricHPUPrecision], ids=["Trainer", "Fabric"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return each plugin class, on a machine with Gaudi 2 and without a bridge."""
    _fake_machine(monkeypatch, generation="GAUDI2", version=None)
    if not hasattr(torch.amp, "GradScaler"):
        monkeypatch.setattr(torch.amp, "GradScaler", _Scaler, raising=False)
    return request.param  # type: ignore[no-any-return] # pytest types it as Any.


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with the two op lists of the documented examples."""
    (tmp_path / "ops_bf16_mnist.txt").write_text("linear\nrelu\n")
    (tmp_path / "ops_fp32_mnist.txt").write_text("cross_entropy\nlog_softmax\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


_MNIST = OpLists.create(bf16_ops=["linear", "relu"], fp32_ops=["cross_entropy", "log_softmax"])


def _fake_machine(monkeypatch: pytest.MonkeyPatch, *, generation: str | None, version: str | None) -> None:
    monkeypatch.setattr(hpu_core, "device_name", lambda: generation)
    monkeypatch.setattr(bridge, "plugin_version", lambda: version)
    monkeypatch.setattr(bridge, "is_loaded", lambda: False)


def _lists(plugin: Any) -> OpLists:
    lists: OpLists = plugin._resolved.autocast.lists
    return lists


def test_precision_is_normalized_to_lightnings_name(make: Make) -> None:
    """The machine has Gaudi 2 and no HMP."""
    assert [make(value).precision for value in (16, "bf16", "fp8")] == ["16-mixed", "bf16-mixed", "fp8"]
    assert make().precision == "32-true"
    assert all(word in repr(make()) for word in ("lightning", "Precision"))


_NAMES = {"bf16_ops": ["linear", "relu"], "fp32_ops": ("cross_entropy", "log_softmax")}
_PATHS = {"bf16_ops": "ops_bf16_mnist.txt", "fp32_ops": "ops_fp32_mnist.txt"}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "options",
    [
        {
            "bf16_file_path": _PATHS["bf16_ops"],
            "fp32_file_path": _PATHS["fp32_ops"],
            "opt_level": "O1",
            "verbose": False,
        },
        {"hmp_params": {"level": "O1", "verbose": False, **_PATHS}},
        {"hmp_params": _NAMES},
        _NAMES,
    ],
    ids=["files", "hmp_params", "names in hmp_params", "names"],
)
def test_ways_to_give_op_lists(options: dict[str, Any], make: Make) -> None:
    """The first two are the documented forms."""
    assert _lists(make(16, **options)) == _MNIST


def test_level_and_none_in_hmp_params_select_lists(make: Make) -> None:
    plugin = make("bf16", hmp_params=dict.fromkeys(["level", "verbose", "bf16_ops", "fp32_ops"]))

    assert _lists(plugin) == default_op_lists()


@pytest.mark.parametrize("options", [{"bf16_ops": ["linear"]}, {"hmp_params": {"bf16_ops": ["linear"]}}])
def test_bf16_list_selects_bf16_for_16_bit(options: dict[str, Any], make: Make) -> None:
    plugin = make(16, **options)

    assert (plugin.precision, plugin._resolved.autocast.dtype) == ("bf16-mixed", torch.bfloat16)
    assert make(16, fp32_ops=["softmax"]).precision == "16-mixed"


@pytest.mark.parametrize(
    ("generation", "version", "value", "name"),
    [
        # HMP, in SynapseAI up to 1.12, has bf16 only, which every generation has.
        ("GAUDI2", "1.10.0.494", 16, "bf16-mixed"),
        ("GAUDI2", "1.12.1.10", "16-mixed", "bf16-mixed"),
        ("GAUDI", "1.11.0.587", 16, "bf16-mixed"),
        ("GAUDI2", "1.13.0.463", 16, "16-mixed"),
        ("GAUDI2", "99.0", "16-mixed", "16-mixed"),
        ("GAUDI2", "unknown", 16, "16-mixed"),
        # The generation is checked again when training starts.
        (None, None, 16, "16-mixed"),
        ("GAUDI", "1.20.0.543", "32-true", "32-true"),
        ("GAUDI", "1.20.0.543", "bf16-mixed", "bf16-mixed"),
        pytest.param("GAUDI", "1.20.0.543", "bf16-true", "bf16-true", marks=_has_half),
    ],
)
def test_precision_by_generation_and_release(  # noqa: PLR0913, PLR0917 - a table.
    generation: str | None,
    version: str | None,
    value: int | str,
    name: str,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _fake_machine(monkeypatch, generation=generation, version=version)

    assert make(value).precision == name


@pytest.mark.parametrize(("value", "dtype"), [(16, "float16"), ("fp8", "fp8")])
def test_first_generation_rejects_fp16_and_fp8(
    value: int | str, dtype: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_machine(monkeypatch, generation="GAUDI", version="1.20.0.543")

    with pytest.raises(NotImplementedError, match=rf"do not support {dtype}: use precision='bf16-mixed'"):
        make(value)


def test_fp16_without_a_gradient_scaler_is_rejected(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch before 2.3 has no GradScaler for hpu."""
    monkeypatch.delattr(torch.amp, "GradScaler")

    with pytest.raises(
        NotImplementedError, match=r"which torch has for hpu from 2\.3 on, .* use precision='bf16-mixed'"
    ):
        make(16)


def test_users_scaler_is_used(make: Make) -> None:
    scaler = torch.amp.GradScaler("hpu", init_scale=2.0)

    assert make(16, scaler=scaler).state_dict()["scale"] == scaler.state_dict()["scale"]


_SCALER = "`scaler` must be None unless precision is '16-mixed'"
_TWICE = "`hmp_params` must not be combined with `opt_level`"


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ("bf16", {"scaler": _Scaler("hpu")}, _SCALER),
        (32, {"bf16_ops": ["linear"]}, "op lists need a mixed precision such as 'bf16-mixed'"),
        ("bf16", {"opt_level": "O2"}, "`opt_level` must be 'O1', got 'O2': name the ops in `bf16_ops`"),
        *(
            (16, {"hmp_params": {"level": "O1"}, **options}, _TWICE)
            for options in ({"opt_level": "O2"}, {"verbose": True}, {"fp32_ops": ["log"]})
        ),
        (16, {"hmp_params": {"bf16_op": None}}, "no other keys than level, .*, got .'bf16_op'"),
    ],
)
def test_options_that_contradict_are_rejected(
    value: int | str, options: dict[str, Any], message: str, make: Make
) -> None:
    with pytest.raises(ValueError, match=message):
        make(value, **options)
