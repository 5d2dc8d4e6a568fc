"""csrc/hccl_work.cpp: the works of collectives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_COLLECTIVES: Final = """
import json
import warnings
import torch
import torch.distributed as dist
import habana_frameworks.torch.distributed.hccl
from hpu_sim.device.runtime import native

warnings.simplefilter("ignore", FutureWarning)  # Torch 2.13 renames some of these.
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
x = lambda: torch.tensor([3.0, 4.0], device="hpu")
y = lambda: torch.zeros(2, device="hpu")
calls = {
    "allreduce": lambda: dist.all_reduce(x(), async_op=True),
    "broadcast": lambda: dist.broadcast(x(), 0, async_op=True),
    "reduce": lambda: dist.reduce(x(), 0, async_op=True),
    "allgather": lambda: dist.all_gather([y()], x(), async_op=True),
    "allgather_base": lambda: dist.all_gather_into_tensor(y(), x(), async_op=True),
    "gather": lambda: dist.gather(x(), [y()], 0, async_op=True),
    "scatter": lambda: dist.scatter(y(), [x()], 0, async_op=True),
    "reduce_scatter": lambda: dist.reduce_scatter(y(), [x()], async_op=True),
    "reduce_scatter_base": lambda: dist.reduce_scatter_tensor(y(), x(), async_op=True),
    "alltoall": lambda: dist.all_to_all([y()], [x()], async_op=True),
    "alltoall_base": lambda: dist.all_to_all_single(y(), x(), async_op=True),
}
group = dist.distributed_c10d._get_default_group()
if hasattr(group, "reduce_scatter_tensor_coalesced"):
    calls["reduce_scatter_tensor_coalesced"] = lambda: group.reduce_scatter_tensor_coalesced([y()], [x()])
report = {}
for name, call in calls.items():
    native().start_device_trace()
    (result,) = call().get_future().wait()
    events = native().stop_device_trace()
    traced = [event[1] for event in events if event[0] == "collective"]
    report[name] = [result.device.type, result.tolist(), traced]
dist.destroy_process_group()
print(json.dumps(report))
"""


def test_a_future_that_nobody_holds_releases_its_outputs(output_on: Callable[..., str]) -> None:
    """Without another collective."""
    program = """
    import torch
    import torch.distributed as dist
    import habana_frameworks.torch.distributed.hccl
    dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
    before = torch.hpu.memory_allocated()
    dist.all_reduce(torch.ones(1000, device="hpu"), async_op=True).get_future().wait()
    torch.hpu.synchronize()  # the thread that completed it has let go of it
    print(torch.hpu.memory_allocated() - before)
    dist.destroy_process_group()
    """

    assert output_on(program, HPU_SIM_DEVICES="1").splitlines()[-1] == "0"


def test_every_collective_has_a_future_and_a_trace_event(output_on: Callable[..., str]) -> None:
    """The future's value is the caller's hpu tensor, and a profile has one event with the collective's name."""
    results = json.loads(output_on(_COLLECTIVES, HPU_SIM_DEVICES="1").splitlines()[-1])

    assert len(results) >= 11
    assert results == {name: ["hpu", [3, 4], [name]] for name in results}


_PROFILE: Final = """
import torch
import torch.distributed as dist
import habana_frameworks.torch.distributed.hccl

dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    dist.all_reduce(torch.ones(2, device="hpu"))
dist.destroy_process_group()
print(*(event.name for event in profile.events()))
"""


def test_a_profile_does_not_record_gloo(output_on: Callable[..., str]) -> None:
    """Torch corrupts the heap if a recorded work of gloo ends after the profile."""
    names = output_on(_PROFILE, HPU_SIM_DEVICES="1").splitlines()[-1].split()

    assert "c10d::allreduce_" in names
    assert not [name for name in names if name.startswith("gloo")]
