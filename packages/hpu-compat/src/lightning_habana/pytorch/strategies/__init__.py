"""Strategies of the Trainer."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_compat._absent import HPUFSDPStrategy
    from hpu_core import SingleHPUStrategy
    from hpu_ddp import HPUDDPStrategy, HPUParallelStrategy
    from hpu_deepspeed import HPUDeepSpeedStrategy


__all__ = [
    "HPUDDPStrategy",
    "HPUDeepSpeedStrategy",
    "HPUFSDPStrategy",
    "HPUParallelStrategy",
    "SingleHPUStrategy",
]

__getattr__, __dir__ = _lazy.fetching(
    __name__, _behind.TRAINER, __all__, submodules=("ddp", "deepspeed", "fsdp", "parallel", "single")
)
