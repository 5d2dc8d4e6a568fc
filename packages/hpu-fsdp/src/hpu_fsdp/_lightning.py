"""Names of Lightning that hpu-fsdp uses, from the framework that `hpu_core.frameworks` selects.

Importing this module imports that framework. Type checkers see the names of `lightning`; `pytorch_lightning` has the
same ones.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from packaging.version import Version
from torch.distributed.checkpoint import state_dict

from hpu_core import frameworks
from hpu_fsdp._torch import replaced

if TYPE_CHECKING:
    from lightning.fabric.plugins.precision.fsdp import FSDPPrecision as FabricFSDPPrecision
    from lightning.fabric.strategies.fsdp import FSDPStrategy as FabricFSDPStrategy
    from lightning.fabric.strategies.model_parallel import ModelParallelStrategy as FabricModelParallelStrategy
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.plugins.precision.fsdp import FSDPPrecision
    from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
    from lightning.pytorch.trainer.states import TrainerFn
    from lightning.pytorch.utilities import rank_zero_info
else:
    _framework = frameworks.current()

    class _Missing:
        """Base of classes whose base Lightning lacks. They can be imported, and construction raises an error."""

        def __new__(cls, *_: object, **__: object) -> None:
            check_versions(cls)

    # Lightning 2.0 has another one.
    FSDPPrecision = getattr(_framework.pytorch("plugins.precision.fsdp"), "FSDPPrecision", _Missing)
    FSDPStrategy = _framework.pytorch("strategies").FSDPStrategy
    FabricFSDPPrecision = _framework.fabric("plugins.precision.fsdp").FSDPPrecision
    FabricFSDPStrategy = _framework.fabric("strategies").FSDPStrategy
    TrainerFn = _framework.pytorch("trainer.states").TrainerFn
    rank_zero_info = _framework.pytorch("utilities").rank_zero_info
    # From Lightning 2.3 on.
    FabricModelParallelStrategy = getattr(_framework.fabric("strategies"), "ModelParallelStrategy", _Missing)
    ModelParallelStrategy = getattr(_framework.pytorch("strategies"), "ModelParallelStrategy", _Missing)
    MisconfigurationException = _framework.fabric("utilities.exceptions").MisconfigurationException


# The first Lightning, and the first torch with its SynapseAI release. Lightning's connectors refuse subclasses of
# FSDPStrategy before 2.3, and its ModelParallelStrategy knows no other torch before 2.4. Stock torch frees storages of
# hpu tensors, as FSDP does with gathered parameters, from 2.3 on. torch 2.9 is the first whose FSDP2 reduces by sums
# alone, and whose DTensors draw random numbers on HPU.
_FIRST: Final = {"FSDP": ("2.3", "2.3", "1.17"), "ModelParallel": ("2.4", "2.9", "1.23")}


def check_versions(cls: type) -> None:
    """Raise an ImportError if Lightning or torch is too old for a class, or for the class that it derives from."""
    version = frameworks.current().version
    names = " ".join(base.__name__ for base in cls.__mro__)
    first, first_torch, release = next(first for part, first in _FIRST.items() if part in names)
    if version < Version(f"{first}.dev0") or Version(torch.__version__) < Version(f"{first_torch}.dev0"):
        raise ImportError(
            f"{cls.__name__} needs Lightning {first} and torch {first_torch}, which comes with SynapseAI {release}, or "
            f"newer, got {version} and {torch.__version__}: upgrade, or train with `strategy='hpu_ddp'` or "
            "`strategy='hpu_deepspeed'`"
        )


@contextmanager
def sharded_saves() -> Iterator[list[dict[str, Any]]]:
    """Yield a list of the sharded states that Lightning's strategies save inside the context, which write no shards."""
    states: list[dict[str, Any]] = []

    def keep(state: dict[str, Any], path: object) -> None:  # noqa: ARG001 - Lightning's arguments.
        states.append(state)

    framework = frameworks.current()
    with ExitStack() as stack:
        for import_from, name in itertools.product((framework.fabric, framework.pytorch), ("fsdp", "model_parallel")):
            # The same private name in Lightning 2.3 to 2.6.
            stack.enter_context(replaced(import_from(f"strategies.{name}"), "_distributed_checkpoint_save", keep))
        yield states


@contextmanager
def loading_stateless_optimizers() -> Iterator[None]:
    """Return a context in which optimizers without a state are loaded, such as SGD, or Adam before its first step.

    Lightning 2.3 to 2.6 look for the first parameter's state, and raise an IndexError; torch 2.13 looks for the device
    of a state.
    """
    module: Any = frameworks.current().fabric("strategies.model_parallel")
    rekey = module._rekey_optimizer_state_if_needed  # noqa: SLF001 - it has this name in Lightning 2.3 to 2.6, and no public one.
    load = state_dict.set_optimizer_state_dict

    def rekey_states(saved: dict[str, Any], model: torch.nn.Module) -> Any:
        return rekey(saved, model) if saved["state"] else saved

    def load_states(model: Any, optimizers: Any, *, optim_state_dict: dict[str, Any], **options: Any) -> None:
        if optim_state_dict["state"]:
            load(model, optimizers, optim_state_dict=optim_state_dict, **options)
        else:
            load_hyperparameters(optimizers, optim_state_dict)

    with (
        replaced(module, "_rekey_optimizer_state_if_needed", rekey_states),
        replaced(state_dict, "set_optimizer_state_dict", load_states),
    ):
        yield


def load_hyperparameters(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load the learning rates and other options of an optimizer's groups, by their order."""
    for group, saved_group in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        group.update({key: value for key, value in saved_group.items() if key != "params"})
