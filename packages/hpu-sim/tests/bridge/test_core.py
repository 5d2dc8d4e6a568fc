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


def test_is_lazy_has_two_names() -> None:
    assert htcore.is_lazy() is internal.is_lazy() is True


@pytest.mark.parametrize(
    "mark",
    [htcore.mark_step, htcore.iter_mark_step, step_closure._mark_step_if_lazy],
    ids=["mark_step", "iter_mark_step", "_mark_step_if_lazy"],
)
def test_mark_step_ends_the_graph(mark: Callable[..., object], statistics: Callable[[], dict[str, int]]) -> None:
    """It returns None and is not a host sync."""
    torch.ones(1, device="hpu").add_(1)

    assert mark() is None
    assert mark("hpu") is None
    assert (statistics()["graphs"], statistics()["host_syncs"]) == (1, 0)


def test_mark_step_with_sync_is_a_host_sync(statistics: Callable[[], dict[str, int]]) -> None:
    torch.ones(1, device="hpu").add_(1)

    htcore.mark_step(sync=True)

    assert (statistics()["graphs"], statistics()["host_syncs"]) == (1, 1)


def test_closures_run_at_the_next_step() -> None:
    """They run once, in order, with their arguments."""
    calls: list[object] = []
    htcore.add_step_closure(calls.append, args=(1,))
    htcore.add_step_closure(lambda: calls.append(2))
    before = list(calls)

    htcore.mark_step()
    htcore.mark_step()

    assert before == []
    assert calls == [1, 2]


def test_a_closure_added_by_a_closure_runs_at_the_step_after() -> None:
    """A closure that adds itself again does not loop forever."""
    calls: list[int] = []
    htcore.add_step_closure(lambda: htcore.add_step_closure(calls.append, (1,)))

    htcore.mark_step()
    after_one = list(calls)
    htcore.mark_step()

    assert (after_one, calls) == ([], [1])


def test_a_failing_closure_is_dropped() -> None:
    """`mark_step` raises its error, and the next `mark_step` works."""

    def fail() -> None:
        raise ZeroDivisionError

    htcore.add_step_closure(fail)

    with pytest.raises(ZeroDivisionError):
        htcore.mark_step()
    htcore.mark_step()


_EAGER: Final = """
import json
import hpu_sim
hpu_sim.activate()
import torch
import habana_frameworks.torch.core as htcore
from hpu_sim.device.runtime import has_device

calls = []
returned = [htcore.mark_step(), htcore.iter_mark_step("hpu"), htcore.add_step_closure(calls.append, (1,))]
taken = has_device()
torch.ones(1, device="hpu")
returned.append(htcore.mark_step(sync=True))
print(json.dumps({"lazy": htcore.is_lazy(), "calls": calls, "returned": returned, "taken": taken, **hpu_sim.stats()}))
"""


@pytest.fixture(scope="module")
def eager(output_of: Callable[..., str]) -> dict[str, object]:
    """Return the effects of `mark_step` in eager mode."""
    return dict(json.loads(output_of(_EAGER, PT_HPU_LAZY_MODE="0")))


def test_mark_step_does_nothing_in_eager_mode(eager: dict[str, object]) -> None:
    """It acquires no device, is not a host sync and returns None."""
    assert (eager["lazy"], eager["taken"], eager["host_syncs"], eager["graphs"]) == (False, False, 0, 0)
    assert eager["returned"] == [None] * 4


def test_closures_never_run_in_eager_mode(eager: dict[str, object]) -> None:
    assert eager["calls"] == []


def test_the_generation_is_known_without_acquiring_a_device() -> None:
    """It is a member of SynapseAI's enum."""
    assert experimental._get_device_type() is experimental.synDeviceType.synDeviceGaudi2
    assert [member.name for member in experimental.synDeviceType] == [
        "synDeviceGaudi",
        "synDeviceGaudi2",
        "synDeviceGaudi3",
    ]


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


def test_data_ptr_is_the_address_of_the_first_element() -> None:
    x = torch.ones(4, device="hpu")

    assert experimental._data_ptr(x[1:]) == x.data_ptr() + 4


def test_the_legacy_functions_work() -> None:
    """Scripts for old releases use them."""
    from habana_frameworks.torch.distributed import hccl

    assert library_loader.is_habana_available() is True
    assert library_loader.load_habana_module() is None
    assert distributed_utils.initialize_distributed_hpu is hccl.initialize_distributed_hpu
