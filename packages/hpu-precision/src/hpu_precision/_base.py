"""Shared part of the Trainer's and Fabric's precision plugins."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from hpu_core import frameworks
from hpu_precision import _resolver
from hpu_precision._autocast import AutocastPolicy
from hpu_precision._fp8 import QuantConfig
from hpu_precision._lightning import rank_zero_info, rank_zero_warn

if TYPE_CHECKING:
    import torch
    from lightning.fabric.plugins import Precision
    from torch.nn import Module


class HPUPrecisionBase:
    """Base of the precision plugins; list it before Lightning's base class.

    Loss scaling and half precision are delegated to one of Lightning's own plugins, which a subclass creates in
    `_make_delegate`. For the arguments see HPUPrecisionPlugin.
    """

    def __init__(  # noqa: PLR0913 - two documented constructors in one.
        self,
        precision: int | str = "32-true",
        device: str = "hpu",
        *,
        opt_level: str = "O1",
        verbose: bool = False,
        bf16_file_path: str | PathLike[str] | None = None,
        fp32_file_path: str | PathLike[str] | None = None,
        bf16_ops: Iterable[str] | None = None,
        fp32_ops: Iterable[str] | None = None,
        hmp_params: Mapping[str, Any] | None = None,
        scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        arguments = dict(locals())
        options = _resolver.Options(**{field.name: arguments[field.name] for field in fields(_resolver.Options)})
        if device != "hpu":
            raise ValueError(f"`device` must be 'hpu', got {device!r}")
        self._resolved = _resolver.resolve(precision, options, rank_zero_info, rank_zero_warn)
        self._delegate = self._make_delegate(self._resolved)
        # Lightning's type of the attribute does not include "fp8".
        self.precision: Any = self._resolved.name

    @abstractmethod
    def _make_delegate(self, resolved: _resolver.ResolvedPrecision) -> "Precision":
        """Return Lightning's plugin."""

    def convert_modules(  # noqa: PLR0913, PLR0917 - the signature of the archived package.
        self,
        module: "Module",
        inference: bool = False,
        replace_layers: bool = False,
        recipe: Any = None,
        quant: QuantConfig = True,
        fp8_data_path: str | PathLike[str] | None = None,
    ) -> "Module":
        """Convert a module to fp8 before it is passed to the Trainer or Fabric.

        For training, call `convert_modules(module, replace_layers=True)`. For inference, first measure with
        `inference=True, quant=False` on some batches. Then quantize with `inference=True`, in another process or with
        a fresh module. Arguments of the other purpose are ignored.

        Args:
            module: The module.
            inference: Whether to convert for inference with Intel Neural Compressor, instead of for training with
                Intel's transformer engine.
            replace_layers: For training: whether to replace each `torch.nn.Linear` by the engine's layer. Only the
                engine's layers compute in fp8. Layers whose sizes are not multiples of 16, and the adapters of LoRA
                beside a base layer, stay in bf16.
            recipe: For training: the engine's recipe, such as `DelayedScaling()`; the engine's default if None.
            quant: For inference: True to quantize and False to measure, both with the default configuration; or a
                configuration of Neural Compressor, as a dict or the path of a JSON file.
            fp8_data_path: For inference: directory of the measurements.

        Returns:
            The converted module.

        Raises:
            ValueError: The plugin's precision is not "fp8", or the configuration is invalid.
            ModuleNotFoundError: The bridge, its transformer engine or Neural Compressor is missing.
        """
        fp8 = self._resolved.fp8
        if fp8 is None:
            raise ValueError(f"`convert_modules` needs precision='fp8', got a plugin with {self.precision!r}")
        if inference:
            return fp8.convert_for_inference(module, quant, fp8_data_path)
        return fp8.convert_for_training(module, recipe, replace_layers=replace_layers)

    def convert_module(self, module: "Module") -> "Module":
        """Convert the parameters with "bf16-true" and "16-true"; prepare the layers of the engine with "fp8".

        A module without such layers is warned about. Forward passes that are recomputed in a backward pass compute in
        fp8 as well, with the scales of the first ones.
        """
        if self._resolved.fp8 is not None:
            self._resolved.fp8.prepare(module)
        return self._delegate.convert_module(module)

    def tensor_init_context(self) -> AbstractContextManager[Any]:
        """Return the context manager that creates tensors in the dtype of the parameters."""
        return self._delegate.tensor_init_context()

    def module_init_context(self) -> AbstractContextManager[Any]:
        """Return the context manager that creates modules in the dtype of the parameters."""
        return self._delegate.module_init_context()

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return the context manager for a module's step; with "32-true" it does nothing."""
        autocast = self._resolved.autocast
        if autocast is None:
            return self._delegate.forward_context()
        return autocast.enabled() if self._resolved.fp8 is None else self._enable_both(autocast)

    @contextmanager
    def _enable_both(self, autocast: AutocastPolicy) -> Iterator[None]:
        with autocast.enabled(), self.fp8_context():
            yield

    def fp8_context(self) -> AbstractContextManager[Any]:
        """Return the context of fp8 alone, without autocast, for a module whose other layers are in bf16."""
        return nullcontext() if self._resolved.fp8 is None else self._resolved.fp8.enabled()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the gradient scaler; empty without one."""
        return self._delegate.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the gradient scaler."""
        self._delegate.load_state_dict(state_dict)

    def teardown(self) -> None:
        """Save the fp8 measurements, if any."""
        if self._resolved.fp8 is not None:
            self._resolved.fp8.finalize()

    def __repr__(self) -> str:
        return frameworks.describe(self)
