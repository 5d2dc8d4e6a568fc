"""Tests of conversion to fp8, with a stand-in for Intel Neural Compressor."""

import json
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import hpu_core
from hpu_core import bridge
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin

_NAME = "neural_compressor.torch.quantization"


class FakeCompressor(ModuleType):
    """Stand-in for Neural Compressor that records its calls."""

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
def compressor(monkeypatch: pytest.MonkeyPatch) -> FakeCompressor:
    """Fake a machine with Gaudi 2, a bridge and Neural Compressor."""
    module = FakeCompressor()
    for name in ("neural_compressor", "neural_compressor.torch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, _NAME, module)
    monkeypatch.setattr(hpu_core, "device_name", lambda: "GAUDI2")
    monkeypatch.setattr(bridge, "set_inference_env", lambda: None)
    return module


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=[HPUPrecisionPlugin, FabricHPUPrecision], ids=["Trainer", "Fabric"])
def plugin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return each plugin with precision "fp8"."""
    monkeypatch.setattr(hpu_core, "device_name", lambda: "GAUDI2")
    return request.param("fp8")


@pytest.mark.parametrize(("quant", "call", "mode"), [(True, "convert", "QUANTIZE"), (False, "prepare", "MEASURE")])
def test_quant_selects_measuring_or_quantizing(  # noqa: PLR0913, PLR0917 - two fixtures and a folder.
    quant: bool, call: str, mode: str, plugin: Any, compressor: FakeCompressor, directory: Path
) -> None:
    """The module that Neural Compressor returns is returned. The configuration files of the package stay."""
    module, data = nn.Linear(4, 4), directory / "new" / "fp8"
    files = [resources.files("hpu_precision").joinpath(f"fp8_configs/{name}.json") for name in ("measure", "quantize")]
    before = [file.read_text() for file in files]

    converted = plugin.convert_modules(module, inference=True, quant=quant, fp8_data_path=data)

    assert compressor.calls == [(call, module)]
    assert converted[0] is module
    assert (compressor.configs[0]["mode"], compressor.configs[0]["dump_stats_path"]) == (mode, str(data / "measure"))
    assert quant or data.is_dir()
    assert [file.read_text() for file in files] == before


def test_users_configuration_is_used_and_not_modified(plugin: Any, compressor: FakeCompressor, directory: Path) -> None:
    """`fp8_data_path` is added to a copy of a dict or of the content of a file."""
    quant = {"mode": "QUANTIZE", "scale_method": "unit_scale"}
    path, text = directory / "config.json", '{"mode": "measure", "dump_stats_path": "elsewhere/m"}'
    path.write_text(text)

    for each in (quant, str(path)):
        plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=each, fp8_data_path=directory)

    assert compressor.configs[0] == {**quant, "dump_stats_path": str(directory / "measure")}
    assert compressor.configs[1]["dump_stats_path"] == str(directory / "measure")
    assert quant == {"mode": "QUANTIZE", "scale_method": "unit_scale"}
    assert path.read_text() == text


@pytest.mark.usefixtures("compressor")
def test_configuration_without_a_mode_is_rejected(plugin: Any, directory: Path) -> None:
    (directory / "config.json").write_text('{"mode": "AUTO"}')

    with pytest.raises(ValueError, match="'mode' in `quant` must be 'MEASURE' or 'QUANTIZE', got 'AUTO'"):
        plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=directory / "config.json")


@pytest.mark.parametrize(("quant", "calls"), [(False, ["prepare", "finalize_calibration"]), (True, ["convert"])])
def test_teardown_saves_the_measurements_once(
    quant: bool, calls: list[str], plugin: Any, compressor: FakeCompressor
) -> None:
    converted = plugin.convert_modules(nn.Linear(4, 4), inference=True, quant=quant)
    plugin.teardown()
    plugin.teardown()

    assert [name for name, _ in compressor.calls] == calls
    assert quant or compressor.calls[1][1] is converted


def test_missing_compressor_error_has_the_pip_command(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "neural_compressor", None)

    with pytest.raises(ModuleNotFoundError, match=r"Neural Compressor, .* pip install \"neural-compressor-pt\""):
        plugin.convert_modules(nn.Linear(4, 4), inference=True)


def test_convert_modules_needs_fp8() -> None:
    with pytest.raises(ValueError, match="`convert_modules` needs precision='fp8', got a plugin with 'bf16-mixed'"):
        HPUPrecisionPlugin("bf16-mixed").convert_modules(nn.Linear(4, 4))


def test_inference_is_initialized_once_in_the_first_step(
    plugin: Any, compressor: FakeCompressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the module is converted, it need not be on the device yet."""
    initialized: list[object] = []
    monkeypatch.setattr(bridge, "initialize_inference", initialized.append)
    fp8: Any = plugin._resolved.fp8

    converted = plugin.convert_modules(nn.Linear(4, 4), inference=True)
    before = [*initialized]
    for _ in range(2):
        with fp8.enabled():
            pass

    assert (before, initialized) == ([], [converted])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., nn.Module]:
    """Fake the transformer engine and return its linear layer."""

    class Linear(nn.Linear):
        def __init__(self, first: int, second: int, *, bias: bool, params_dtype: Any, device: Any) -> None:
            super().__init__(first, second, bias=bias, dtype=params_dtype, device=device)

    monkeypatch.setattr(bridge, "transformer_engine", lambda: SimpleNamespace(Linear=Linear))
    return Linear


class _TiedModule(nn.Module):
    """Module with a shared layer, a tied weight, attention and nested layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.shared = self.first
        self.tied = nn.Linear(16, 16, bias=False)
        self.tied.weight = self.first.weight
        self.attention = nn.MultiheadAttention(4, 2)
        self.register_module("nothing", None)
        self.nested = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(16, 32)))


def test_linear_layers_are_replaced_and_parameters_stay(plugin: Any, engine: type[nn.Module]) -> None:
    """Existing optimizers stay valid, and tied weights stay tied.

    Attention reads the weight of its projection without calling the layer, which therefore stays.
    """
    module = _TiedModule()
    before = dict(module.named_parameters())
    assert plugin.convert_modules(module) is module
    assert type(module.first) is nn.Linear
    plugin.convert_modules(module, replace_layers=True)

    assert {type(layer) for layer in (module.first, module.tied, module.nested[1][0])} == {engine}
    assert not isinstance(module.attention.out_proj, engine)
    assert all(parameter is before[name] for name, parameter in module.named_parameters())
    assert module.tied.weight is module.first.weight
    assert module.shared is module.first


def test_layers_that_do_not_fit_stay(plugin: Any, engine: type[nn.Module], caplog: pytest.LogCaptureFixture) -> None:
    body, head = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16)), nn.Linear(16, 10)
    module = nn.ModuleDict({"body": body, "head": head})
    with caplog.at_level("INFO"):
        plugin.convert_modules(module, replace_layers=True)

    assert [type(body[0]), type(body[1]), type(module["head"])] == [engine, engine, nn.Linear]
    assert "2 layers compute in fp8" in caplog.text


def test_adapters_stay_in_bf16(plugin: Any, engine: type[nn.Module]) -> None:
    """Only the layer inside of a layer of LoRA is replaced."""
    peft = pytest.importorskip("peft", reason="Requires: peft")
    model = peft.get_peft_model(nn.Sequential(nn.Linear(16, 16)), peft.LoraConfig(r=16, target_modules=["0"]))

    plugin.convert_modules(model, replace_layers=True)

    converted = [name for name, part in model.named_modules() if isinstance(part, engine)]
    assert converted == ["base_model.model.0.base_layer"]
    assert model(torch.ones(1, 16)).shape == (1, 16)


def test_converted_layer_can_be_initialized_again(plugin: Any, engine: type[nn.Module]) -> None:
    """Strategies do it with layers on the meta device."""
    layer = plugin.convert_modules(nn.Linear(16, 16, device="meta"), replace_layers=True)
    layer.to_empty(device="cpu").reset_parameters()

    assert 0 < layer.weight.abs().max() <= 0.25


@pytest.mark.usefixtures("engine", "compressor")
def test_module_without_fp8_layers_warns(plugin: Any, recwarn: pytest.WarningsRecorder) -> None:
    """Not one for inference, because Neural Compressor does not use the engine's layers."""
    plugin.convert_module(plugin.convert_modules(_TiedModule(), replace_layers=True))
    plugin.convert_module(plugin.convert_modules(_TiedModule(), inference=True))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="this module has none: call `plugin.convert_modules"):
        type(plugin)("fp8").convert_module(_TiedModule())
