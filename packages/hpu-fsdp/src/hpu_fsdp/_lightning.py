"""Names of Lightning that hpu-fsdp uses, from the framework that `hpu_core.frameworks` selects.

Importing this module imports that framework. Type checkers see the names of `lightning`; `pytorch_lightning` has the
same ones.
"""

from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from hpu_core import frameworks

if TYPE_CHECKING:
    from lightning.fabric.plugins.precision.fsdp import FSDPPrecision as FabricFSDPPrecision
    from lightning.fabric.strategies.fsdp import FSDPStrategy as FabricFSDPStrategy
    from lightning.fabric.strategies.model_parallel import ModelParallelStrategy as FabricModelParallelStrategy
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch import LightningModule
    from lightning.pytorch.plugins.precision.fsdp import FSDPPrecision
    from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
    from lightning.pytorch.utilities import rank_zero_warn
else:
    _framework = frameworks.current()

    class _Missing:
        """Base of classes whose base Lightning lacks. They can be imported, and construction raises an error."""

        def __new__(cls, *_: object, **__: object) -> None:
            check_version(cls.__name__)

    # Lightning 2.0 has another one.
    FSDPPrecision = getattr(_framework.pytorch("plugins.precision.fsdp"), "FSDPPrecision", _Missing)
    FSDPStrategy = _framework.pytorch("strategies").FSDPStrategy
    FabricFSDPPrecision = _framework.fabric("plugins.precision.fsdp").FSDPPrecision
    FabricFSDPStrategy = _framework.fabric("strategies").FSDPStrategy
    LightningModule = _framework.pytorch().LightningModule
    rank_zero_warn = _framework.pytorch("utilities").rank_zero_warn
    # From Lightning 2.3 on.
    FabricModelParallelStrategy = getattr(_framework.fabric("strategies"), "ModelParallelStrategy", _Missing)
    ModelParallelStrategy = getattr(_framework.pytorch("strategies"), "ModelParallelStrategy", _Missing)
    MisconfigurationException = _framework.fabric("utilities.exceptions").MisconfigurationException

__all__ = [
    "FSDPPrecision",
    "FSDPStrategy",
    "FabricFSDPPrecision",
    "FabricFSDPStrategy",
    "FabricModelParallelStrategy",
    "LightningModule",
    "MisconfigurationException",
    "ModelParallelStrategy",
    "check_version",
    "constructor_arguments",
    "copy_activation_checkpointing",
    "fsdp_arguments",
    "rank_zero_warn",
]

# Its connectors refuse subclasses of FSDPStrategy before 2.3, and its ModelParallelStrategy knows no other torch.
_FIRST: Final = {"FSDP": Version("2.3.dev0"), "ModelParallel": Version("2.4.dev0")}

# Attributes in which Lightning 2.3 to 2.6 keep the arguments of FSDPStrategy, the Trainer's and Fabric's, by argument.
_ATTRIBUTES: Final = {
    "accelerator": "_accelerator",
    "parallel_devices": "_parallel_devices",
    "cluster_environment": "cluster_environment",
    "checkpoint_io": "_checkpoint_io",
    "precision_plugin": "_precision_plugin",
    "precision": "_precision",
    "process_group_backend": "_process_group_backend",
    "timeout": "_timeout",
    "cpu_offload": "cpu_offload",
    "mixed_precision": "mixed_precision",
    "sharding_strategy": "sharding_strategy",
    "state_dict_type": "_state_dict_type",
}
# Fabric's strategies have this attribute and no such argument.
_NO_ARGUMENTS: Final = {FabricFSDPStrategy: {"checkpoint_io"}}


def check_version(name: str) -> None:
    """Raise an error if Lightning is too old for a class.

    Args:
        name: Name of the class.

    Raises:
        ImportError: It is.
    """
    version = frameworks.current().version
    first = next(first for part, first in _FIRST.items() if part in name)
    if version < first:
        raise ImportError(
            f"{name} needs Lightning {first.major}.{first.minor} or newer, got {version}: upgrade Lightning, or train "
            "with `strategy='hpu_ddp'` or `strategy='hpu_deepspeed'`"
        )


def constructor_arguments(strategy: "FSDPStrategy | FabricFSDPStrategy") -> dict[str, Any]:
    """Return the arguments that an FSDPStrategy of Lightning was constructed with.

    Args:
        strategy: The strategy, not set up yet.
    """
    unknown = next((names for kind, names in _NO_ARGUMENTS.items() if isinstance(strategy, kind)), set())
    attributes = vars(strategy)
    arguments = {name: attributes[key] for name, key in _ATTRIBUTES.items() if key in attributes if name not in unknown}
    return {**arguments, **fsdp_arguments(strategy)}


def copy_activation_checkpointing(source: Any, target: Any) -> None:
    """Set the activation checkpointing policy of a strategy to that of another one.

    Args:
        source: An FSDPStrategy, which no longer has the argument as the user passed it.
        target: Another one.
    """
    target._activation_checkpointing_kwargs = source._activation_checkpointing_kwargs  # noqa: SLF001 - see above.


def fsdp_arguments(strategy: Any) -> dict[str, Any]:
    """Return the keyword arguments that an FSDPStrategy passes to FullyShardedDataParallel, which the caller may edit.

    Args:
        strategy: The Trainer's FSDPStrategy, or Fabric's.
    """
    arguments: dict[str, Any] = vars(strategy)["kwargs" if "kwargs" in vars(strategy) else "_fsdp_kwargs"]
    return arguments
