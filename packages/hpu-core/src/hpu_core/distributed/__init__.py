"""Distributed training: what every strategy for several devices needs, once.

- `environment`: the cluster environment that launchers set, validated
- `store`: the job's store at MASTER_PORT, and the JSON objects in it
- `rendezvous`: every rank joins under one attempt id, or learns which rank is missing
- `process_group`: rendezvous, hccl initialization and watchdog of one strategy
- `failure_detection`: pure functions from heartbeats to the failure
- `connections`: connections to the store, from the kernel's table
- `excepthook`: keeps the output of a failed job short
- `watchdog`: publishes and reads heartbeats, and ends the process when the job cannot continue
- `sigterm`: all ranks stop before the same batch
- `launcher`: subprocess launchers of the ranks on this machine
- `strategy`: mixins and base classes of strategies

It rests on torch's TCPStore at MASTER_PORT and adds no port. See docs/architecture.md, "Failure detection".
"""

from typing import TYPE_CHECKING

from hpu_core.lazy_exports import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_core.distributed.failure_detection import RankFailedError
    from hpu_core.distributed.process_group import ProcessGroupManager
    from hpu_core.distributed.strategy import FabricHPUParallelStrategyBase, HPUParallelMixin, HPUParallelStrategyBase

__all__ = [
    "FabricHPUParallelStrategyBase",
    "HPUParallelMixin",
    "HPUParallelStrategyBase",
    "ProcessGroupManager",
    "RankFailedError",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "hpu_core.distributed.failure_detection": ["RankFailedError"],
        "hpu_core.distributed.process_group": ["ProcessGroupManager"],
        "hpu_core.distributed.strategy": [
            "FabricHPUParallelStrategyBase",
            "HPUParallelMixin",
            "HPUParallelStrategyBase",
        ],
    },
)
