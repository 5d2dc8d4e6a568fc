"""Conversion of modules to fp8: training with Intel's transformer engine, inference with Intel Neural Compressor."""

import copy
import functools
import importlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import resources
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import torch
from torch import nn

from hpu_core import bridge

# Modes of Neural Compressor: measure the range of a model's values, and quantize by these measurements.
_MEASURE: Final = "MEASURE"
_QUANTIZE: Final = "QUANTIZE"

# Of both sizes of a layer; the rule of accelerate's conversion, `convert_model`.
_MULTIPLE: Final = 16

QuantConfig = bool | str | PathLike[str] | Mapping[str, Any]


class FP8Converter:
    """fp8 state of a precision plugin."""

    def __init__(self, warn: Callable[[str], None], log: Callable[[str], None]) -> None:
        self._warn = warn
        self._log = log
        self._recipe: Any = None
        self._is_inference = False
        # Converted module for which the bridge is not initialized yet, because it must be on the device first.
        self._pending_init: nn.Module | None = None
        self._calibrating: nn.Module | None = None
        self._hooks: list[Any] = []
        # Contexts of layers that are being recomputed.
        self._recomputing: list[AbstractContextManager[Any]] = []

    def convert_for_training(self, module: nn.Module, recipe: Any, *, replace_layers: bool) -> nn.Module:
        """Prepare a module for training with the transformer engine; return it, or what replaces a single Linear."""
        engine = bridge.transformer_engine()
        self._recipe, self._is_inference = recipe, False
        if not replace_layers:
            return module
        converted = _replace_linear(module, engine, {})
        num_layers = sum(isinstance(layer, engine.Linear) for layer in converted.modules())
        self._log(f"{num_layers} {'layer computes' if num_layers == 1 else 'layers compute'} in fp8")
        return converted

    def convert_for_inference(
        self, module: nn.Module, quant: QuantConfig, fp8_data_path: str | PathLike[str] | None
    ) -> nn.Module:
        """Prepare a trained module for measuring, or quantize it to fp8 by earlier measurements."""
        config = _load_config(quant, fp8_data_path)
        mode = _validate_mode(config)
        compressor = _import_neural_compressor()
        if mode == _MEASURE:
            Path(config["dump_stats_path"]).parent.mkdir(parents=True, exist_ok=True)
        bridge.set_inference_env()
        convert = compressor.prepare if mode == _MEASURE else compressor.convert
        converted: nn.Module = convert(module, _make_inc_config(compressor, config))
        self._is_inference = True
        self._pending_init = converted
        self._calibrating = converted if mode == _MEASURE else None
        return converted

    @contextmanager
    def enabled(self) -> Iterator[None]:
        """Enable fp8 in the transformer engine's layers inside the context; does nothing for inference."""
        if self._pending_init is not None:
            bridge.initialize_inference(self._pending_init)
            self._pending_init = None
        if self._is_inference:
            yield
            return
        with self._autocast():
            yield

    def _autocast(self, **options: Any) -> AbstractContextManager[Any]:
        # All ranks share the amax, because each has another part of the data, and all have the same layers.
        group = torch.distributed.group.WORLD if torch.distributed.is_initialized() else None
        context: AbstractContextManager[Any] = bridge.transformer_engine().fp8_autocast(
            enabled=True, fp8_recipe=self._recipe, fp8_group=group, **options
        )
        return context

    def prepare(self, module: nn.Module) -> None:
        """Make layers that are recomputed compute in fp8; warn if a module to train has no layer of the engine."""
        if self._is_inference:
            return
        engine = bridge.transformer_engine()
        classes = tuple(cls for cls in vars(engine).values() if isinstance(cls, type) and issubclass(cls, nn.Module))
        layers = [layer for layer in module.modules() if isinstance(layer, classes)]
        for hook in self._hooks:
            hook.remove()
        self._hooks = [layer.register_forward_pre_hook(self._enter_recomputation) for layer in layers]
        self._hooks += [layer.register_forward_hook(self._exit_recomputation, always_call=True) for layer in layers]
        if not layers:
            self._warn(
                "precision='fp8' applies only to layers of Intel's transformer engine, and this module has none: call "
                "`plugin.convert_modules(module, replace_layers=True)` before training, or use the engine's `Linear`. "
                "All other layers run in bf16 mixed precision."
            )

    def _enter_recomputation(self, *_: object) -> None:
        # torch's checkpoint restores autocast, not the engine's context. Measuring again would count a batch twice.
        if torch._C._current_graph_task_id() != -1:  # noqa: SLF001 - torch has no public name for a backward pass.
            self._recomputing.append(self._autocast(force_measurement=False))
            self._recomputing[-1].__enter__()

    def _exit_recomputation(self, *_: object) -> None:
        if self._recomputing:
            self._recomputing.pop().__exit__(None, None, None)

    def finalize(self) -> None:
        """Save the measurements, if any."""
        if self._calibrating is not None:
            _import_neural_compressor().finalize_calibration(self._calibrating)
            self._calibrating = None


def _replace_linear(module: nn.Module, engine: ModuleType, replaced: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return the module with the engine's linear layers; a layer that is used twice stays shared.

    Args:
        module: The module.
        engine: The transformer engine.
        replaced: Modules by what they are replaced with; filled here.
    """
    if module in replaced:
        return replaced[module]
    replaced[module] = module
    # Excludes subclasses, which compute something else or whose attributes other modules read, as attention does.
    if type(module) is nn.Linear:
        # The engine's layers take no DTensor.
        is_sharded = hasattr(module.weight, "device_mesh")
        if module.in_features % _MULTIPLE or module.out_features % _MULTIPLE or is_sharded:
            return module
        layer: Any = engine.Linear(
            module.in_features,
            module.out_features,
            bias=module.bias is not None,
            params_dtype=module.weight.dtype,
            device=module.weight.device,
        )
        # Keeping the parameter objects keeps optimizers and tied weights valid.
        layer.weight, layer.bias = module.weight, module.bias
        layer.train(module.training)
        if not hasattr(layer, "reset_parameters"):
            # Strategies initialize layers on the meta device with it.
            layer.reset_parameters = functools.partial(nn.Linear.reset_parameters, layer)
        replaced[module] = layer
        return replaced[module]
    # `named_children` skips the second occurrence of a layer. PEFT's adapters have small matrices beside the layer.
    is_adapter = hasattr(module, "adapter_layer_names") and hasattr(module, "base_layer")
    for child_name, child in module._modules.items():  # noqa: SLF001 - see above.
        if child is not None and (child_name == "base_layer" or not is_adapter):
            setattr(module, child_name, _replace_linear(child, engine, replaced))
    return module


def _load_config(quant: QuantConfig, fp8_data_path: str | PathLike[str] | None) -> dict[str, Any]:
    """Return a copy of Neural Compressor's configuration as a dict."""
    config: dict[str, Any]
    if isinstance(quant, bool):
        config = _default_config("quantize" if quant else "measure")
    elif isinstance(quant, Mapping):
        config = copy.deepcopy(dict(quant))
    else:
        config = json.loads(Path(quant).read_text(encoding="utf-8"))
    if fp8_data_path is not None:
        # The last component is the prefix of the file names.
        config["dump_stats_path"] = str(Path(fp8_data_path) / "measure")
    config.setdefault("dump_stats_path", _default_config("measure")["dump_stats_path"])
    return config


def _default_config(name: Literal["measure", "quantize"]) -> Any:
    return json.loads(resources.files("hpu_precision").joinpath(f"fp8_configs/{name}.json").read_text(encoding="utf-8"))


def _validate_mode(config: Mapping[str, Any]) -> str:
    mode = str(config.get("mode", "")).upper()
    if mode not in {_MEASURE, _QUANTIZE}:
        raise ValueError(f"'mode' in `quant` must be {_MEASURE!r} or {_QUANTIZE!r}, got {config.get('mode')!r}")
    return mode


def _make_inc_config(compressor: ModuleType, config: Mapping[str, Any]) -> Any:
    """Return Neural Compressor's configuration object; every version can create it from a file."""
    with tempfile.TemporaryDirectory(prefix="hpu-precision-") as directory:
        path = Path(directory, "config.json")
        path.write_text(json.dumps(config), encoding="utf-8")
        return compressor.FP8Config.from_json_file(str(path))


def _import_neural_compressor() -> ModuleType:
    name = "neural_compressor.torch.quantization"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"inference in fp8 needs Intel Neural Compressor, which cannot be imported: {error}. It is part of Intel's "
            'PyTorch image from SynapseAI 1.17 on; elsewhere, pip install "neural-compressor-pt".',
            name=error.name or name,
        ) from error
