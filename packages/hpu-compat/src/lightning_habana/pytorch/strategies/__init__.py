"""Re-exports of the Trainer's strategies."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUDDPStrategy", "HPUDeepSpeedStrategy", "HPUFSDPStrategy", "HPUParallelStrategy", "SingleHPUStrategy"]

if TYPE_CHECKING:
    from hpu_core import SingleHPUStrategy
    from hpu_ddp import HPUDDPStrategy, HPUParallelStrategy
    from hpu_deepspeed import HPUDeepSpeedStrategy
    from hpu_fsdp import HPUFSDPStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
