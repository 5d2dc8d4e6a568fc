"""Set-up of the strategies for several devices: every step has one owner and runs once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch.distributed as dist

from hpu_core import HPUAccelerator, frameworks, hccl, plugins
from hpu_core.distributed import process_group
from hpu_testing.process_groups import leave_process_group

if TYPE_CHECKING:
    from hpu_testing import SharedRankPool

# DeepSpeed keeps state of its own when a process group is destroyed, so these are the last.
STRATEGIES = ["hpu_ddp", "hpu_fsdp", pytest.param("hpu_deepspeed", marks=pytest.mark.slow)]


def _count_steps(name: str, is_fabric: bool) -> dict[str, int]:
    """Set a strategy up, and return how often each step ran."""
    framework = frameworks.current()
    options: dict[str, Any] = {"accelerator": HPUAccelerator(), "devices": 2}
    paths = plugins.installed()[name.replace("_", "-")].strategies[name]
    with ExitStack() as stack:

        def count(owner: Any, step: str) -> None:
            steps[step] = stack.enter_context(mock.patch.object(owner, step, wraps=getattr(owner, step)))

        steps: dict[str, mock.Mock] = {}
        if is_fabric:
            strategy = framework.fabric().Fabric(strategy=plugins.load(str(paths.fabric))(), **options).strategy
        else:
            options |= {"logger": False, "enable_checkpointing": False}
            strategy = framework.pytorch().Trainer(strategy=plugins.load(str(paths.trainer))(), **options).strategy
        count(strategy, "check_accelerator")
        count(strategy.cluster_environment, "set_global_rank")
        count(process_group, "join")
        count(strategy, "prepare_device")
        count(hccl, "initialize_hccl")
        count(dist, "init_process_group")
        strategy.setup_environment()
        dist.barrier()
        strategy.process_groups.close()
        leave_process_group()
        return {step: counted.call_count for step, counted in steps.items()}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("is_fabric", [False, True], ids=["Trainer", "Fabric"])
def test_each_step_runs_once(name: str, is_fabric: bool, ranks: SharedRankPool) -> None:
    first, second = ranks.call(_count_steps, name, is_fabric)

    assert first == second == dict.fromkeys(first, 1)
    assert len(first) == 6
