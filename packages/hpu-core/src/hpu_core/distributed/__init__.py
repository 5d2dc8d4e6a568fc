"""Distributed training: what every strategy for several devices needs, once.

It rests on torch's TCPStore at MASTER_PORT and adds no port. See docs/architecture.md, "Failure detection".
"""

from hpu_core.distributed.errors import RankFailedError

__all__ = ["RankFailedError"]
