"""`htcore` and `htexp`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.core import step_closure
from habana_frameworks.torch.utils import distributed_utils, experimental, internal, library_loader

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "mark",
    [htcore.mark_step, step_closure._mark_step_if_lazy],
    ids=["mark_step", "_mark_step_if_lazy"],
)
def test_mark_step_ends_the_graph(mark: Callable[..., object], statistics: Callable[[], dict[str, int]]) -> None:
    torch.ones(1, device="hpu").add_(1)

    assert mark() is None
    assert mark("hpu") is None
    assert (statistics()["graphs"], statistics()["host_syncs"]) == (1, 0)
    htcore.mark_step(sync=True)
    assert statistics()["host_syncs"] == 1


_EAGER: Final = """
import json
import hpu_sim
hpu_sim.activate()
import torch
import habana_frameworks.torch.core as htcore
from hpu_sim.device.runtime import has_device
returned = [htcore.mark_step()]
taken = has_device()
torch.ones(1, device="hpu")
returned.append(htcore.mark_step(sync=True))
print(json.dumps({"lazy": htcore.is_lazy(), "returned": returned, "taken": taken, **hpu_sim.stats()}))
"""


def test_mark_step_does_nothing_in_eager_mode(output_of: Callable[..., str]) -> None:
    """It acquires no device, and is not a host sync."""
    eager = json.loads(output_of(_EAGER, PT_HPU_LAZY_MODE="0"))

    assert (eager["lazy"], eager["taken"], eager["host_syncs"], eager["graphs"]) == (False, False, 0, 0)
    assert eager["returned"] == [None] * 2


def test_the_generation_is_a_member_of_the_enum_of_synapseai() -> None:
    kinds = experimental.synDeviceType
    assert experimental._get_device_type() is kinds.synDeviceGaudi2
    assert [member.name for member in kinds] == ["synDeviceGaudi", "synDeviceGaudi2", "synDeviceGaudi3"]


@pytest.mark.parametrize(("generation", "supported"), [("GAUDI", "False"), ("GAUDI3", "True")])
def test_float16_needs_the_second_generation(generation: str, supported: str, output_of: Callable[..., str]) -> None:
    """The first generation has bfloat16 only."""
    program = """
    import sys
    import hpu_sim
    hpu_sim.activate(generation=sys.argv[1])
    from habana_frameworks.torch.utils import experimental
    print(experimental._is_fp16_supported(), experimental._get_device_type().name.removeprefix("synDevice").upper())
    """

    assert output_of(program, generation) == f"{supported} {generation}"


def test_functions_for_old_scripts_work() -> None:
    from habana_frameworks.torch.distributed import hccl

    assert htcore.is_lazy() is internal.is_lazy() is library_loader.is_habana_available() is True
    assert distributed_utils.initialize_distributed_hpu is hccl.initialize_distributed_hpu
