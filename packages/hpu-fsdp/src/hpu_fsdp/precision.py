"""Precision plugins for FSDP."""

import dataclasses
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

from hpu_core import bridge, casts, frameworks, plugins
from hpu_core.fp8 import FP8PrecisionMixin, installed_precision
from hpu_fsdp._lightning import FabricFSDPPrecision, FSDPPrecision, MisconfigurationException, check_versions
from hpu_fsdp._torch import HPUShardedGradScaler

if TYPE_CHECKING:
    from lightning.fabric.plugins import Precision
    from torch.nn import Module
    from torch.optim import Optimizer

    from hpu_core.plugins import Api

    class _FSDPPrecision:
        """Part of Lightning's precision plugins for FSDP that is used here."""

        def __init__(self, precision: Any) -> None: ...
        @property
        def mixed_precision_config(self) -> MixedPrecision: ...
        def convert_module(self, module: Module) -> Module: ...
        def tensor_init_context(self) -> AbstractContextManager[Any]: ...
        def forward_context(self) -> AbstractContextManager[Any]: ...

else:
    _FSDPPrecision = object

__all__ = ["FabricHPUFSDPPrecision", "HPUFSDPPrecision"]

_TRUE: Final = {"bf16-true": torch.bfloat16, "16-true": torch.float16}


_Plugin = TypeVar("_Plugin", bound="_HPUFSDPPrecision")


class _HPUFSDPPrecision(FP8PrecisionMixin, _FSDPPrecision):
    """Mixin for the Trainer's and Fabric's plugin; list it before Lightning's."""

    _api: "Api"
    scaler: Any

    def __init__(
        self,
        precision: Any = "32-true",
        scaler: ShardedGradScaler | None = None,
        *,
        autocast: "Precision | None" = None,
    ) -> None:
        check_versions(type(self))
        name = plugins.normalize_precision(precision, "FSDP")
        if scaler is not None and name != "16-mixed":
            raise ValueError(f"`scaler` must be None with `precision={name!r}`, which scales no loss, got {scaler!r}")
        # Lightning creates a scaler for CUDA with "16-mixed", and refuses one that is passed. Otherwise the two mixed
        # precisions differ in their dtype only. It does not know "fp8", where all but the engine's layers is in bf16.
        super().__init__("bf16-mixed" if name in {"16-mixed", "fp8"} else name)
        self.precision = name
        self.scaler = (scaler or HPUShardedGradScaler("hpu")) if name == "16-mixed" else None
        self._autocast = autocast
        if autocast is None and ("mixed" in name or name == "fp8"):
            self._autocast = installed_precision(name, self._api)
        self.fp8_plugin = self._autocast if name == "fp8" else None

    @property
    def mixed_precision_config(self) -> MixedPrecision:
        """Dtypes in which FSDP gathers parameters and reduces gradients; Lightning before 2.6 gathers in float32."""
        if self.precision == "fp8":
            bf16 = torch.bfloat16
            return MixedPrecision(param_dtype=bf16, reduce_dtype=bf16, buffer_dtype=bf16)
        config = super().mixed_precision_config
        return dataclasses.replace(config, param_dtype=config.reduce_dtype)

    def module_init_context(self) -> AbstractContextManager[Any]:
        """Return the context of a module's construction: parameters are float32 in mixed precision.

        Lightning before 2.6 takes the dtype in which they are gathered.
        """
        return super().tensor_init_context()

    def convert_module(self, module: "Module") -> "Module":
        """Convert the parameters with "bf16-true" and "16-true"; prepare the layers of the engine with "fp8".

        Args:
            module: The module to train.

        Raises:
            NotImplementedError: The precision is float16, which the devices do not support.
        """
        if self.fp8_plugin is not None:
            self.fp8_plugin.convert_module(module)
        if self.precision.startswith("16") and not bridge.is_fp16_supported():
            raise NotImplementedError(f"precision={self.precision!r} needs Gaudi 2 or newer: use 'bf16-mixed'")
        # Lightning 2.4 leaves the parameters as they are.
        return super().convert_module(module.to(_TRUE[self.precision]) if self.precision in _TRUE else module)

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return the context of a module's step: autocast in mixed precision, otherwise the parameters' dtype."""
        if "mixed" not in self.precision and self.fp8_plugin is None:
            return super().forward_context()
        if self._autocast is not None:
            return self._autocast.forward_context()
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
        # torch's cache of cast weights would keep gathered parameters alive.
        return torch.autocast("hpu", dtype=dtype, cache_enabled=False)

    def __repr__(self) -> str:
        return frameworks.describe(self)


class HPUFSDPPrecision(_HPUFSDPPrecision, FSDPPrecision):
    """Precision plugin for `HPUFSDPStrategy`.

    In mixed precision, parameters are gathered and gradients reduced in the lower precision, and the step runs in
    autocast. Autocast follows hpu-precision's op lists if that package is installed. The sharded parameters and the
    optimizer's states stay in float32.

    Args:
        precision: "32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true" or "fp8"; also "32", "bf16" and "16", as
            in the Trainer. float16 and fp8 need Gaudi 2 or newer, and fp8 needs hpu-precision and `convert_modules`.
        scaler: Gradient scaler for "16-mixed"; `ShardedGradScaler("hpu")` if None.
        autocast: Plugin whose `forward_context` casts in mixed precision, such as
            `HPUPrecisionPlugin("bf16-mixed", bf16_ops=[...])` of hpu-precision.

    Attributes:
        root_module: The module that the strategy has sharded, for gradient clipping.

    Raises:
        ModuleNotFoundError: `precision` is "fp8", and hpu-precision is not installed.
        ValueError: `precision` is not supported, or does not use a scaler.
    """

    _api = "pytorch"

    root_module: "Module | None" = None

    @casts.without
    def clip_grad_by_norm(self, optimizer: "Optimizer", clip_val: float = 0.0) -> None:  # noqa: ARG002 - FSDP clips all.
        """Clip the gradients by their norm over the parameters of all ranks.

        Args:
            optimizer: Optimizer whose gradients to clip; the only one of the module.
            clip_val: Maximum norm; 0 disables clipping.

        Raises:
            MisconfigurationException: The module is not wrapped as a whole.
        """
        if clip_val <= 0:
            return
        if not isinstance(self.root_module, FullyShardedDataParallel):
            raise MisconfigurationException(
                "`gradient_clip_algorithm='norm'` needs a module that is wrapped in FullyShardedDataParallel as a "
                f"whole, got {type(self.root_module).__name__}: leave the wrapping to the strategy, or clip by value"
            )
        self.root_module.clip_grad_norm_(clip_val)


class FabricHPUFSDPPrecision(_HPUFSDPPrecision, FabricFSDPPrecision):
    """Precision plugin for Fabric's `HPUFSDPStrategy`, with the arguments of HPUFSDPPrecision.

    Raises:
        ValueError: `precision` is not supported, or does not use a scaler.
    """

    _api = "fabric"


def replace_plugin(plugin: Any, cls: type[_Plugin]) -> _Plugin | None:
    """Return a strategy's precision plugin: the user's, or one in place of Lightning's, which enters CUDA's autocast.

    Raises:
        TypeError: The plugin is not one for FSDP.
    """
    if plugin is None or isinstance(plugin, cls):
        return plugin
    if isinstance(plugin, FabricFSDPPrecision if cls is FabricHPUFSDPPrecision else FSDPPrecision):
        return cls(plugin.precision)
    raise TypeError(
        f"the precision plugin must be of class {cls.__name__} with FSDP, got {type(plugin).__name__}: pass "
        f"`precision={plugin.precision!r}` to the Trainer or to Fabric, or `{cls.__name__}(..., autocast=plugin)`"
    )
