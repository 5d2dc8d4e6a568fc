"""Inference in fp8, against a stand-in for neural compressor, and what `convert_modules` refuses."""

import json
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import nn

import hpu_core
from hpu_core import bridge
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin

_NAME = "neural_compressor.torch.quantization"


class Compressor(ModuleType):
    """Neural compressor's functions, which note what they are called with."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self.configs: list[dict[str, Any]] = []
        self.calls: list[tuple[str, nn.Module]] = []
        self.FP8Config = SimpleNamespace(from_json_file=self._read)

    def _read(self, path: str) -> dict[str, Any]:
        self.configs.append(json.loads(Path(path).read_text(encoding="utf-8")))
        return self.configs[-1]

    def prepare(self, model: nn.Module, config: dict[str, Any]) -> nn.Module:
        self.calls.append(("prepare", model))
        return nn.Sequential(model)

    def convert(self, model: nn.Module, config: dict[str, Any]) -> nn.Module:
        self.calls.append(("convert", model))
        return nn.Sequential(model)

    def finalize_calibration(self, model: nn.Module) -> None:
        self.calls.append(("finalize_calibration", model))


@pytest.fixture
def compressor(monkeypatch: pytest.MonkeyPatch) -> Compressor:
    """A machine with Gaudi 2 cards, a bridge and neural compressor."""
    module = Compressor()
    for name in ("neural_compressor", "neural_compressor.torch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, _NAME, module)
    monkeypatch.setattr(hpu_core, "device_name", lambda: "GAUDI2")
    monkeypatch.setattr(bridge, "set_inference_env", lambda: None)
    return module


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=[HPUPrecisionPlugin, FabricHPUPrecision], ids=["Trainer", "Fabric"])
def plugin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both plugins, in fp8."""
    monkeypatch.setattr(hpu_core, "device_name", lambda: "GAUDI2")
    return request.param("fp8")


@pytest.mark.parametrize(("quant", "call", "mode"), [(True, "convert", "QUANTIZE"), (False, "prepare", "MEASURE")])
def test_a_module_is_measured_or_converted(
    quant: bool, call: str, mode: str, plugin: Any, compressor: Compressor
) -> None:
    """`quant` says which, and what neural compressor makes of the module is returned."""
    module = nn.Linear(4, 4)

    converted = plugin.convert_modules(module, inference=True, quant=quant)

    assert compressor.calls == [(call, module)]
    assert converted[0] is module
    assert compressor.configs[0]["mode"] == mode


@pytest.mark.parametrize("quant", [True, False])
def test_what_is_measured_is_read_where_it_was_written(
    quant: bool, plugin: Any, compressor: Compressor, folder: Path
) -> None:
    """Both steps use the folder that the user names."""
    plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=quant, fp8_data_path=folder / "fp8")

    assert compressor.configs[0]["dump_stats_path"] == str(folder / "fp8" / "measure")


def test_the_folder_of_the_measurements_is_made(plugin: Any, compressor: Compressor, folder: Path) -> None:
    """Measuring needs no folder made by hand."""
    plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=False, fp8_data_path=folder / "new" / "fp8")

    assert (folder / "new" / "fp8").is_dir()


def test_the_packaged_configuration_is_never_changed(plugin: Any, compressor: Compressor, folder: Path) -> None:
    """The folder is written into a copy."""
    files = [resources.files("hpu_precision").joinpath(f"fp8_configs/{name}.json") for name in ("measure", "quantize")]
    before = [file.read_text() for file in files]
    for quant in (True, False):
        plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=quant, fp8_data_path=folder)

    assert [file.read_text() for file in files] == before


def test_the_users_dictionary_is_used_and_not_changed(plugin: Any, compressor: Compressor, folder: Path) -> None:
    """A configuration in Python reaches neural compressor, with the folder that is given beside it."""
    quant = {"mode": "QUANTIZE", "scale_method": "unit_scale"}

    plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=quant, fp8_data_path=folder)

    assert compressor.configs == [{**quant, "dump_stats_path": str(folder / "measure")}]
    assert quant == {"mode": "QUANTIZE", "scale_method": "unit_scale"}


def test_the_users_file_is_used_and_not_changed(plugin: Any, compressor: Compressor, folder: Path) -> None:
    """A configuration in a file reaches neural compressor; the file stays as it is."""
    path = folder / "config.json"
    path.write_text('{"mode": "measure", "dump_stats_path": "elsewhere/m"}')

    plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=str(path), fp8_data_path=folder)

    assert compressor.configs[0]["dump_stats_path"] == str(folder / "measure")
    assert path.read_text() == '{"mode": "measure", "dump_stats_path": "elsewhere/m"}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"`quant` must be a readable JSON file, got '.*config\.json': Expecting property name"),
        ("[1]", r"`quant` must be a JSON file that holds an object, and '.*' holds \[1\]"),
        ('{"mode": "AUTO"}', "`quant` must have a 'mode' that is 'MEASURE' or 'QUANTIZE', got 'AUTO'"),
        ("{}", "`quant` must have a 'mode' that is 'MEASURE' or 'QUANTIZE', got None"),
    ],
)
@pytest.mark.usefixtures("compressor")
def test_a_configuration_that_cannot_be_used_is_an_error(content: str, message: str, plugin: Any, folder: Path) -> None:
    """The error names the argument, the file and what is wrong."""
    (folder / "config.json").write_text(content)

    with pytest.raises(ValueError, match=message):
        plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=folder / "config.json")


@pytest.mark.usefixtures("compressor")
def test_a_missing_configuration_is_an_error(plugin: Any) -> None:
    """The error names the path."""
    with pytest.raises(ValueError, match=r"`quant` must be a readable JSON file, got 'none\.json': .* No such file"):
        plugin.convert_modules(nn.Linear(4, 4), inference=True, quant="none.json")


def test_what_was_measured_is_written_at_the_end_once(plugin: Any, compressor: Compressor) -> None:
    """The Trainer's teardown writes the measurements, and a second one nothing."""
    converted = plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=False)
    plugin.teardown()
    plugin.teardown()

    assert compressor.calls[1:] == [("finalize_calibration", converted)]


def test_after_converting_there_is_nothing_to_write(plugin: Any, compressor: Compressor) -> None:
    """Only measuring has results."""
    plugin.convert_modules(nn.Linear(4, 4), inference=True)
    plugin.teardown()

    assert [name for name, _ in compressor.calls] == ["convert"]


def test_a_missing_compressor_is_one_sentence(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package and where it comes from."""
    monkeypatch.setitem(sys.modules, "neural_compressor", None)

    with pytest.raises(ModuleNotFoundError, match=r"neural compressor, .* pip install \"neural-compressor-pt\""):
        plugin.convert_modules(nn.Linear(4, 4), inference=True)


@pytest.mark.parametrize("value", [32, "bf16-mixed"])
def test_converting_is_for_fp8(value: int | str) -> None:
    """A plugin of another precision has nothing to convert."""
    with pytest.raises(ValueError, match="`convert_modules` needs precision='fp8', and this plugin's is '"):
        HPUPrecisionPlugin(value).convert_modules(nn.Linear(4, 4))


@pytest.mark.parametrize("options", [{"replace_layers": True}, {"recipe": object()}])
def test_inference_takes_no_arguments_of_training(options: dict[str, Any], plugin: Any) -> None:
    """What would be ignored is refused."""
    with pytest.raises(ValueError, match="`replace_layers` and `recipe` must be left out for inference"):
        plugin.convert_modules(nn.Linear(4, 4), inference=True, **options)


@pytest.mark.parametrize("options", [{"quant": False}, {"quant": {}}, {"fp8_data_path": "fp8"}])
def test_training_takes_no_arguments_of_inference(options: dict[str, Any], plugin: Any) -> None:
    """What would be ignored is refused."""
    with pytest.raises(ValueError, match="`quant` and `fp8_data_path` must be left out for training"):
        plugin.convert_modules(nn.Linear(4, 4), **options)


def test_the_bridge_is_told_once_the_module_is_on_the_card(
    plugin: Any, compressor: Compressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants are marked when the first step begins, not when the module is converted, and once."""
    told: list[object] = []
    monkeypatch.setattr(bridge, "initialize_inference", told.append)
    float8: Any = plugin._choice.float8

    converted = plugin.convert_modules(nn.Linear(4, 4), inference=True)
    before = [*told]
    for _ in range(2):
        with float8.on():
            pass

    assert (before, told) == ([], [converted])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., nn.Module]:
    """A stand-in for the transformer engine's layer."""

    class Linear(nn.Linear):
        def __init__(self, first: int, second: int, *, bias: bool, params_dtype: Any, device: Any) -> None:
            super().__init__(first, second, bias=bias, dtype=params_dtype, device=device)

    monkeypatch.setattr(bridge, "transformer_engine", lambda: SimpleNamespace(Linear=Linear))
    return Linear


class _Tied(nn.Module):
    """A layer in two places, another one with the same weight, attention, and a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        self.attention = nn.MultiheadAttention(4, 2)
        self.register_module("nothing", None)
        self.nested = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))


def test_linear_layers_are_replaced_everywhere(plugin: Any, engine: type[nn.Module]) -> None:
    """Each plain linear layer becomes the engine's, also deep inside."""
    module = plugin.convert_modules(_Tied(), replace_layers=True)

    assert {type(layer) for layer in (module.first, module.tied, module.nested[1][0])} == {engine}


def test_parameters_stay_the_same_objects(plugin: Any, engine: type[nn.Module]) -> None:
    """Optimizers that were made before still know them, and tied weights stay tied."""
    module = _Tied()
    before = dict(module.named_parameters())
    plugin.convert_modules(module, replace_layers=True)

    assert all(parameter is before[name] for name, parameter in module.named_parameters())
    assert module.tied.weight is module.first.weight
    assert module.again is module.first


def test_layers_that_others_reach_into_are_left(plugin: Any, engine: type[nn.Module]) -> None:
    """Attention reads its projection's weight itself, which must stay a plain layer."""
    module = plugin.convert_modules(_Tied(), replace_layers=True)

    assert not isinstance(module.attention.out_proj, engine)


def test_a_single_layer_is_returned_anew(plugin: Any, engine: type[nn.Module]) -> None:
    """A module that is itself a linear layer cannot be changed in place."""
    layer = nn.Linear(4, 4).eval()
    converted = plugin.convert_modules(layer, replace_layers=True)

    assert isinstance(converted, engine)
    assert (converted.weight, converted.training) == (layer.weight, False)


@pytest.mark.usefixtures("engine")
def test_layers_are_left_unless_asked_for(plugin: Any) -> None:
    """Without `replace_layers` the module stays as it is."""
    module = _Tied()

    assert plugin.convert_modules(module) is module
    assert type(module.first) is nn.Linear


@pytest.mark.usefixtures("engine")
def test_a_module_without_layers_of_the_engine_is_warned_of(plugin: Any) -> None:
    """A training that would compute nothing in fp8 says so before it begins."""
    with pytest.warns(UserWarning, match="this module has none: call `plugin.convert_modules"):
        plugin.convert_module(_Tied())


@pytest.mark.usefixtures("engine")
def test_a_module_with_layers_of_the_engine_is_not(plugin: Any, recwarn: pytest.WarningsRecorder) -> None:
    """One layer of the engine is enough."""
    plugin.convert_module(plugin.convert_modules(_Tied(), replace_layers=True))

    assert not recwarn.list


def test_a_module_for_inference_is_not_warned_of(
    plugin: Any, compressor: Compressor, recwarn: pytest.WarningsRecorder
) -> None:
    """What neural compressor converted has no layers of the engine, and needs none."""
    plugin.convert_module(plugin.convert_modules(_Tied(), inference=True))

    assert not recwarn.list
