"""What the constructors take, on a machine without a bridge unless a test says otherwise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

import hpu_core
from hpu_core import bridge, frameworks
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin, OpLists, default_op_lists
from hpu_precision.op_lists import level_op_lists

_has_half = pytest.mark.skipif(
    frameworks.current().version < Version("2.1"), reason="Requires: Lightning 2.1 for half precision"
)

Make = Callable[..., Any]


class _Scaler:
    """Stands for torch's gradient scaler where torch has none for hpu, below 2.3: which is chosen is what is tested."""

    def __init__(self, device: str, init_scale: float = 2.0**16) -> None:
        self._scale = init_scale

    def state_dict(self) -> dict[str, float]:
        return {"scale": self._scale}


@pytest.fixture(params=[HPUPrecisionPlugin, FabricHPUPrecision], ids=["Trainer", "Fabric"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Both plugins, on a machine with Gaudi 2 cards and no bridge."""
    _machine(monkeypatch, generation="GAUDI2", version=None)
    if not hasattr(torch.amp, "GradScaler"):
        monkeypatch.setattr(torch.amp, "GradScaler", _Scaler, raising=False)
    return request.param  # type: ignore[no-any-return] # pytest does not say what it is.


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the two op lists of the documented examples, which is the current one."""
    (tmp_path / "ops_bf16_mnist.txt").write_text("linear\nrelu\n")
    (tmp_path / "ops_fp32_mnist.txt").write_text("cross_entropy\nlog_softmax\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


_MNIST = OpLists.create(bf16_ops=["linear", "relu"], fp32_ops=["cross_entropy", "log_softmax"])


def _machine(monkeypatch: pytest.MonkeyPatch, *, generation: str | None, version: str | None) -> None:
    monkeypatch.setattr(hpu_core, "device_name", lambda: generation)
    monkeypatch.setattr(bridge, "plugin_version", lambda: version)
    monkeypatch.setattr(bridge, "is_loaded", lambda: False)
    # No bridge is going to read what is announced to it.
    monkeypatch.setattr("hpu_precision._variables.announce", lambda lists: None)


def _lists(plugin: Any) -> OpLists:
    lists: OpLists = plugin._choice.casting.lists
    return lists


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (32, "32-true"),
        ("32", "32-true"),
        ("32-true", "32-true"),
        (16, "16-mixed"),
        ("16", "16-mixed"),
        ("16-mixed", "16-mixed"),
        ("bf16", "bf16-mixed"),
        ("bf16-mixed", "bf16-mixed"),
        pytest.param("bf16-true", "bf16-true", marks=_has_half),
        ("fp8", "fp8"),
    ],
)
def test_values_and_their_names_in_lightning(value: int | str, label: str, make: Make) -> None:
    """Each value has one meaning on Gaudi 2 without HMP."""
    assert make(value).precision == label


@pytest.mark.parametrize(
    ("value", "dtype"),
    [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16), (16, torch.float16)],
)
def test_the_type_to_compute_in_is_told(value: int | str, dtype: torch.dtype, make: Make) -> None:
    """ThroughputMonitor asks for it."""
    assert make(value).compute_dtype is dtype


@pytest.mark.skipif(not hasattr(torch, "float8_e4m3fn"), reason="Requires: torch 2.1, which has types of 8 bits")
def test_fp8_computes_in_8_bits(make: Make) -> None:
    """In the type that the transformer engine's layers use for weights and inputs."""
    assert make("fp8").compute_dtype is torch.float8_e4m3fn


def test_the_default_is_32_bit(make: Make) -> None:
    """Without arguments nothing is cast."""
    assert make().precision == "32-true"


@pytest.mark.parametrize("value", [64, "64-true", "16-true", "half", None, True, 16.0, ["bf16"]])
def test_other_values_are_an_error(value: object, make: Make) -> None:
    """The error lists the values there are."""
    with pytest.raises(ValueError, match=r"`precision` must be 32, 16 or one of '32', .*'fp8', got "):
        make(value)


@pytest.mark.usefixtures("files")
def test_the_constructor_with_file_paths(make: Make) -> None:
    """The one documented constructor."""
    plugin = make(
        precision=16,
        opt_level="O1",
        verbose=False,
        bf16_file_path="ops_bf16_mnist.txt",
        fp32_file_path="ops_fp32_mnist.txt",
    )

    assert _lists(plugin) == _MNIST


@pytest.mark.usefixtures("files")
def test_the_constructor_with_hmp_params(make: Make) -> None:
    """The other documented constructor, its dictionary made as the document makes it."""
    hmp_params: dict[str, Any] = dict.fromkeys(["level", "verbose", "bf16_ops", "fp32_ops"])
    hmp_params["level"] = "O1"
    hmp_params["verbose"] = False
    hmp_params["bf16_ops"] = "ops_bf16_mnist.txt"
    hmp_params["fp32_ops"] = "ops_fp32_mnist.txt"

    assert _lists(make(precision=16, hmp_params=hmp_params)) == _MNIST


def test_hmp_params_take_names(make: Make) -> None:
    """In the dictionary, a list of names is a list of names."""
    plugin = make("bf16", hmp_params={"bf16_ops": ["linear", "relu"], "fp32_ops": ("cross_entropy", "log_softmax")})

    assert _lists(plugin) == _MNIST


def test_hmp_params_of_none_are_the_default(make: Make) -> None:
    """What `dict.fromkeys` makes, without more, changes nothing."""
    plugin = make("bf16", hmp_params=dict.fromkeys(["level", "verbose", "bf16_ops", "fp32_ops"]))

    assert _lists(plugin) == default_op_lists()


def test_lists_are_given_in_python(make: Make) -> None:
    """Names need no file."""
    plugin = make("bf16", bf16_ops=["linear", "relu"], fp32_ops=["cross_entropy", "log_softmax"])

    assert _lists(plugin) == _MNIST


@pytest.mark.parametrize("options", [{"bf16_ops": ["linear"]}, {"hmp_params": {"bf16_ops": ["linear"]}}])
def test_a_bf16_list_makes_16_bit_bf16(options: dict[str, Any], make: Make) -> None:
    """Where the user lists ops for bf16, the lower precision is bf16."""
    plugin = make(16, **options)

    assert (plugin.precision, plugin._choice.casting.dtype) == ("bf16-mixed", torch.bfloat16)


def test_an_fp32_list_leaves_16_bit_fp16(make: Make) -> None:
    """A list for float32 says nothing of the lower precision."""
    assert make(16, fp32_ops=["softmax"]).precision == "16-mixed"


@pytest.mark.parametrize(
    ("version", "label"),
    [
        ("1.10.0.494", "bf16-mixed"),
        ("1.12.1.10", "bf16-mixed"),
        ("1.13.0.463", "16-mixed"),
        ("1.24.1.482", "16-mixed"),
        ("99.0", "16-mixed"),
        ("unknown", "16-mixed"),
        (None, "16-mixed"),
    ],
)
@pytest.mark.parametrize("value", [16, "16-mixed"])
def test_16_bit_is_bf16_where_there_is_hmp(
    value: int | str, version: str | None, label: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HMP knows bf16 alone, so up to SynapseAI 1.12 that is what 16 means."""
    _machine(monkeypatch, generation="GAUDI2", version=version)

    assert make(value).precision == label


@pytest.mark.parametrize(("value", "kind"), [(16, "float16"), ("fp8", "fp8")])
def test_the_first_generation_refuses(value: int | str, kind: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first-generation Gaudi has neither, and the error says what it has."""
    _machine(monkeypatch, generation="GAUDI", version="1.20.0.543")

    with pytest.raises(NotImplementedError, match=rf"do not compute in {kind}: use precision='bf16-mixed'"):
        make(value)


def test_the_first_generation_has_hmps_16_bit(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With HMP, 16 means bf16, which every generation has."""
    _machine(monkeypatch, generation="GAUDI", version="1.11.0.587")

    assert make(16).precision == "bf16-mixed"


@pytest.mark.parametrize("value", ["32-true", "bf16-mixed", pytest.param("bf16-true", marks=_has_half)])
def test_the_first_generation_has_bf16(value: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every generation has float32 and bf16."""
    _machine(monkeypatch, generation="GAUDI", version="1.20.0.543")

    assert make(value).precision == value


def test_an_unknown_generation_is_not_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no card is found, the process that trains will see."""
    _machine(monkeypatch, generation=None, version=None)

    assert make(16).precision == "16-mixed"


def test_fp16_without_a_scaler_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 2.3, torch has no scaler for hpu; the error says so and what to do."""
    monkeypatch.delattr(torch.amp, "GradScaler")

    with pytest.raises(
        NotImplementedError, match=r"which torch has for hpu from 2\.3 on, .* use precision='bf16-mixed'"
    ):
        make(16)


def test_the_users_scaler_is_used(make: Make) -> None:
    """A scaler with other settings replaces the default one."""
    scaler = torch.amp.GradScaler("hpu", init_scale=2.0)

    assert make(16, scaler=scaler).state_dict()["scale"] == scaler.state_dict()["scale"]


@pytest.mark.parametrize("value", [32, "bf16", "bf16-true", "fp8"])
def test_a_scaler_is_for_fp16(value: int | str, make: Make) -> None:
    """Elsewhere nothing underflows, and a scaler is refused rather than left unused."""
    with pytest.raises(ValueError, match="`scaler` must be left out"):
        make(value, scaler=torch.amp.GradScaler("hpu"))


@pytest.mark.parametrize("value", [32, "bf16-true"])
def test_lists_are_for_mixed_precision(value: int | str, make: Make) -> None:
    """Where every op runs in one type, lists would be ignored, and are refused."""
    with pytest.raises(ValueError, match="op lists must come with a mixed precision such as 'bf16-mixed'"):
        make(value, bf16_ops=["linear"])


def test_the_second_level_has_lists_of_its_own(make: Make) -> None:
    """HMP ignores the user's lists at level O2; here they are refused."""
    with pytest.raises(ValueError, match="`opt_level` must be 'O1' when op lists are given, got 'O2'"):
        make("bf16", opt_level="O2", bf16_ops=["linear"])


def test_the_second_level(make: Make) -> None:
    """Level O2 stands for its lists."""
    assert _lists(make("bf16", opt_level="O2")) == level_op_lists("O2")


@pytest.mark.parametrize("options", [{"opt_level": "O2"}, {"verbose": True}, {"fp32_ops": ["log"]}])
def test_hmp_params_are_given_alone(options: dict[str, Any], make: Make) -> None:
    """The dictionary holds the same, so both would contradict each other."""
    with pytest.raises(ValueError, match="`hmp_params` must be given alone"):
        make(16, hmp_params={"level": "O1"}, **options)


@pytest.mark.parametrize(
    ("key", "hint"), [("bf16_op", ", did you mean 'bf16_ops'"), ("opt_level", ", did you mean 'level'"), ("zzz", "")]
)
def test_unknown_hmp_params_are_an_error(key: str, hint: str, make: Make) -> None:
    """A typing error in the dictionary does not go unnoticed."""
    with pytest.raises(ValueError, match=rf"no other keys than level, .*, got '{key}'{hint}"):
        make(16, hmp_params={key: None})


@pytest.mark.parametrize("name", ["HalfPrecision", "FabricHalfPrecision"])
def test_half_precision_needs_a_lightning_that_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning 2.0 has no half precision; the error says so."""
    monkeypatch.setattr(f"hpu_precision.{'fabric' if 'Fabric' in name else 'plugin'}.{name}", None)
    make = FabricHPUPrecision if "Fabric" in name else HPUPrecisionPlugin

    with pytest.raises(NotImplementedError, match=r"'bf16-true' needs Lightning 2\.1 or newer: use 'bf16-mixed'"):
        make("bf16-true")


def test_it_says_whose_it_is(make: Make) -> None:
    """The representation names the framework that takes the plugin."""
    assert "Precision" in repr(make())
    assert "lightning" in repr(make())
