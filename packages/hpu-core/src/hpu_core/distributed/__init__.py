"""Distributed training: what every strategy for several devices needs, once.

- `environment`: the cluster environment that launchers set, validated
- `store`: the job's store at MASTER_PORT, and the JSON objects in it
- `rendezvous`: every rank joins the same attempt, or learns which rank is missing
- `process_group`: rendezvous, default process group and watchdog of one strategy
- `failure_detection`: pure functions from heartbeats to the failure
- `connections`: connections to the store, from the kernel's table
- `heartbeat_exchange`: the ranks' heartbeats in the store
- `watchdog`: exchanges heartbeats, and ends the process when the job cannot continue
- `cpp_log`: level of torch's C++ log
- `excepthook`: keeps the output of a failed job short
- `metrics`: synchronization of torchmetrics' metrics, counted as a collective
- `signals`: all ranks handle a signal before the same batch
- `launcher`: subprocess launchers of the ranks on this machine
- `strategy`: base classes of strategies

It rests on torch's TCPStore at MASTER_PORT and adds no port. See docs/architecture.md, "Failure detection".
"""

from hpu_core.distributed.failure_detection import RankFailedError

__all__ = ["RankFailedError"]
