"""Re-exports of the Trainer's strategies."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_compat._unsupported import HPUFSDPStrategy
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

__getattr__, __dir__ = _lazy.lazy_getattr(
    __name__, _targets.TRAINER, __all__, submodules=("ddp", "deepspeed", "fsdp", "parallel", "single")
)
