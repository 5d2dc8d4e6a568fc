"""fp8: training by Intel's transformer engine, inference by Intel's neural compressor."""

import copy
import importlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from torch import nn

from hpu_core import bridge

# Neural compressor's modes: to watch a model and note how large its numbers get, and to compute in fp8 with that.
_MEASURE: Final = "MEASURE"
_QUANTIZE: Final = "QUANTIZE"

Quant = bool | str | PathLike[str] | Mapping[str, Any]


class Float8:
    """What a plugin does about fp8.

    Args:
        warn: Shows a warning to the user.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._recipe: Any = None
        self._infers = False
        # Converted for inference, and the bridge is not told yet: for that, the module must lie on the card.
        self._unannounced: nn.Module | None = None
        self._measured: nn.Module | None = None

    def convert_for_training(self, module: nn.Module, recipe: Any, *, replace_layers: bool) -> nn.Module:
        """Prepare a module to train with the transformer engine.

        Args:
            module: The module.
            recipe: The engine's recipe, such as `DelayedScaling()`; None for the engine's own choice.
            replace_layers: Whether each `torch.nn.Linear` becomes the engine's; its parameters stay the same objects.

        Returns:
            The module, or a new one where it is a single `torch.nn.Linear`.

        Raises:
            ModuleNotFoundError: The bridge or its transformer engine is missing.
        """
        engine = bridge.transformer_engine()
        self._recipe, self._infers = recipe, False
        return _replaced(module, engine, {}) if replace_layers else module

    def convert_for_inference(
        self, module: nn.Module, quant: Quant, fp8_data_path: str | PathLike[str] | None
    ) -> nn.Module:
        """Prepare a trained module to be measured, or to compute in fp8 with what was measured.

        Args:
            module: The module, on the CPU or on the card.
            quant: True to compute in fp8, False to measure, both with this package's configuration; otherwise neural
                compressor's configuration, as a JSON file or a dictionary.
            fp8_data_path: The folder that what is measured is written to and read from; what the configuration says if
                not given.

        Returns:
            What neural compressor made of the module.

        Raises:
            ModuleNotFoundError: The bridge or neural compressor is missing.
            ValueError: The configuration cannot be used.
        """
        config = _config(quant, fp8_data_path)
        mode = _mode(config)
        compressor = _neural_compressor()
        if mode == _MEASURE:
            Path(config["dump_stats_path"]).parent.mkdir(parents=True, exist_ok=True)
        bridge.set_inference_env()
        change = compressor.prepare if mode == _MEASURE else compressor.convert
        converted: nn.Module = change(module, _compressors_own(compressor, config))
        self._infers = True
        self._unannounced = converted
        self._measured = converted if mode == _MEASURE else None
        return converted

    @contextmanager
    def on(self) -> Iterator[None]:
        """Let the transformer engine's layers compute in fp8 inside the context, unless inference was prepared."""
        if self._unannounced is not None:
            bridge.initialize_inference(self._unannounced)
            self._unannounced = None
        if self._infers:
            yield
            return
        with bridge.transformer_engine().fp8_autocast(enabled=True, fp8_recipe=self._recipe):
            yield

    def check(self, module: nn.Module) -> None:
        """Warn where a module that is going to train would not compute anything in fp8."""
        if self._infers:
            return
        engine = bridge.transformer_engine()
        layers = tuple(kind for kind in vars(engine).values() if isinstance(kind, type) and issubclass(kind, nn.Module))
        if not any(isinstance(layer, layers) for layer in module.modules()):
            self._warn(
                "precision='fp8' computes only the layers of Intel's transformer engine in fp8, and this module has "
                "none: call `plugin.convert_modules(module, replace_layers=True)` before training, or build it with "
                "the engine's `Linear`. Everything else runs in bf16 mixed precision."
            )

    def finish(self) -> None:
        """Write down what was measured, if anything."""
        if self._measured is not None:
            _neural_compressor().finalize_calibration(self._measured)
            self._measured = None


def _replaced(module: nn.Module, engine: ModuleType, known: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return a module whose linear layers are the engine's; a layer in two places stays one."""
    if module in known:
        return known[module]
    # Not its subclasses: they compute something else, or others reach into them, as attention does.
    if type(module) is nn.Linear:
        layer = engine.Linear(
            module.in_features,
            module.out_features,
            bias=module.bias is not None,
            params_dtype=module.weight.dtype,
            device=module.weight.device,
        )
        # The same parameters, so that optimizers and tied weights still know them.
        layer.weight, layer.bias = module.weight, module.bias
        layer.train(module.training)
        known[module] = layer
        return known[module]
    known[module] = module
    # `named_children` would leave out the second place of a layer.
    for name, child in module._modules.items():  # noqa: SLF001 - see above
        if child is not None:
            setattr(module, name, _replaced(child, engine, known))
    return module


def _config(quant: Quant, fp8_data_path: str | PathLike[str] | None) -> dict[str, Any]:
    """Return neural compressor's configuration as a dictionary of our own."""
    if isinstance(quant, bool):
        config = _packaged("quantize" if quant else "measure")
    elif isinstance(quant, Mapping):
        config = copy.deepcopy(dict(quant))
    else:
        config = _from_file(Path(quant))
    if fp8_data_path is not None:
        # The last part begins the names of the files.
        config["dump_stats_path"] = str(Path(fp8_data_path) / "measure")
    config.setdefault("dump_stats_path", _packaged("measure")["dump_stats_path"])
    return config


def _packaged(name: Literal["measure", "quantize"]) -> dict[str, Any]:
    text = resources.files("hpu_precision").joinpath(f"fp8_configs/{name}.json").read_text(encoding="utf-8")
    config: dict[str, Any] = json.loads(text)
    return config


def _from_file(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"`quant` must be a readable JSON file, got {str(path)!r}: {error}") from error
    if not isinstance(config, dict):
        # A ValueError like every other fault of the file.
        raise ValueError(  # noqa: TRY004 - see above.
            f"`quant` must be a JSON file that holds an object, and {str(path)!r} holds {config!r}"
        )
    return config


def _mode(config: Mapping[str, Any]) -> str:
    mode = str(config.get("mode", "")).upper()
    if mode not in {_MEASURE, _QUANTIZE}:
        raise ValueError(
            f"`quant` must have a 'mode' that is {_MEASURE!r} or {_QUANTIZE!r}, got {config.get('mode')!r}"
        )
    return mode


def _compressors_own(compressor: ModuleType, config: Mapping[str, Any]) -> Any:
    """Return neural compressor's own configuration object, which it makes of a file on every version."""
    with tempfile.TemporaryDirectory(prefix="hpu-precision-") as temporary:
        path = Path(temporary, "config.json")
        path.write_text(json.dumps(config), encoding="utf-8")
        return compressor.FP8Config.from_json_file(str(path))


def _neural_compressor() -> ModuleType:
    name = "neural_compressor.torch.quantization"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"inference in fp8 needs Intel's neural compressor, which cannot be imported: {error}. It comes with "
            'Intel\'s PyTorch image from SynapseAI 1.17 on; elsewhere, pip install "neural-compressor-pt".',
            name=error.name or name,
        ) from error
