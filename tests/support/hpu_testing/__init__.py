"""Test utilities: functions on several ranks, programs without leaked processes, and machines in a network.

::

    from hpu_testing import RankPool


    def add_up() -> float:
        import torch
        import torch.distributed as dist

        dist.init_process_group("hccl")
        total = torch.ones(1, device="hpu")
        dist.all_reduce(total)
        return total.item()


    def test_ranks_add_up(tmp_path):
        with RankPool(2, tmp_path) as ranks:
            assert ranks.call(add_up) == [2.0, 2.0]

Each rank is a process with its own simulated card. Starting one takes as long as importing torch, so `SharedRankPool`
keeps the processes for all tests of a session. `Network` makes machines whose cables a test can cut. Linux only, like
the simulator. The suites of all packages use it; no distribution has it.
"""

from hpu_testing.network import Network
from hpu_testing.processes import CompletedProgram, Program, free_port, machine_env
from hpu_testing.rank_pool import RankPool, SharedRankPool

__all__ = ["CompletedProgram", "Network", "Program", "RankPool", "SharedRankPool", "free_port", "machine_env"]
