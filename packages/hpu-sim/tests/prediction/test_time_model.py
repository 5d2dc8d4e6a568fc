"""Roofline, fusion, streams and collectives of the time model."""

from __future__ import annotations

from typing import Any

import pytest

from hpu_sim.prediction.collectives import collective_seconds
from hpu_sim.prediction.hardware import hardware, usable_memory
from hpu_sim.prediction.recording import Collective, Operation, StepRecording
from hpu_sim.prediction.time_model import padding, predict


def _operation(
    *, flops: int = 0, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), **kwargs: Any
) -> Operation:
    matmul = (1, 1024, 1024, 1024) if flops else None
    size = 1 << 30
    return Operation(
        "aten.op",
        "forward",
        "",
        "bfloat16",
        flops,
        matmul,
        tuple((each, size) for each in reads),
        tuple((each, size) for each in writes),
        0,
        **kwargs,
    )


def _seconds(operations: list[Operation], *, fuse: bool = True, generation: str = "GAUDI2") -> float:
    return predict(StepRecording(operations), generation, 8, estimate="slow", fuse=fuse).seconds


def test_a_chain_of_elementwise_operators_reads_and_writes_once() -> None:
    chain = [_operation(reads=(number,), writes=(number + 1,)) for number in range(4)]

    assert _seconds(chain) == pytest.approx(_seconds(chain[:1]))
    assert _seconds(chain, fuse=False) == pytest.approx(4 * _seconds(chain[:1], fuse=False), rel=0.02)


def test_a_value_that_is_needed_later_is_written() -> None:
    chain = [_operation(reads=(0,), writes=(1,)), _operation(reads=(1,), writes=(2,))]
    later = [*chain, _operation(flops=1, reads=(1,))]

    assert _seconds(later) - _seconds([later[-1]]) == pytest.approx(1.5 * _seconds(chain))


def test_a_product_with_few_operations_is_limited_by_memory() -> None:
    step = StepRecording([_operation(flops=1, reads=(0,))])

    assert predict(step, "GAUDI3", 8, estimate="slow", fuse=True).spans[0].bound == "memory"


def test_memory_bandwidth_tells_generations_apart_where_memory_limits() -> None:
    operations = [_operation(reads=(0,), writes=(1,))]

    ratio = _seconds(operations) / _seconds(operations, generation="GAUDI3")
    overhead = hardware("GAUDI2", "slow").step_overhead / hardware("GAUDI3", "slow").step_overhead
    assert ratio == pytest.approx(3.67 / 2.46 * overhead)


def test_padding_counts_every_dimension() -> None:
    assert padding((8, 128, 100, 64), "bfloat16") == pytest.approx(1.28 * 2)


def test_an_asynchronous_collective_runs_beside_computation() -> None:
    operation = _operation(reads=(0,), writes=(1,))
    collective = Collective("allreduce", "backward", 1 << 20, 1 << 20, tuple(range(8)), is_async=True, after=0)
    step = StepRecording([operation], [collective])

    beside = predict(step, "GAUDI2", 8, estimate="slow", fuse=True)
    collective.is_async = False
    before = predict(step, "GAUDI2", 8, estimate="slow", fuse=True)

    assert beside.exposed == 0
    assert before.seconds == pytest.approx(beside.seconds + before.exposed)


def test_an_operator_waits_for_the_collective_that_it_reads() -> None:
    collective = Collective("allreduce", "backward", 1 << 30, 1 << 30, tuple(range(64)), is_async=True, after=0)
    step = StepRecording([_operation(reads=(0,), writes=(1,), waits_for=(0,))], [collective])

    timeline = predict(step, "GAUDI2", 8, estimate="slow", fuse=True)

    assert timeline.exposed == pytest.approx(collective_seconds(collective, 8, hardware("GAUDI2", "slow")))


def test_a_host_sync_drains_the_queue() -> None:
    work = _operation(reads=(0,), writes=(1,))
    sync = Operation("host_read", "forward", "", "", 0, None, (), (), 0, host_sync=True)

    timeline = predict(StepRecording([work, sync, work]), "GAUDI2", 8, estimate="slow", fuse=False)

    assert timeline.host >= hardware("GAUDI2", "slow").sync_seconds


def test_published_collectives_are_in_the_range() -> None:
    """Intel's page on collectives has 0.916 ms for all_reduce of 256 MiB on 8 cards, and 512.96 GB/s on the links."""
    collective = Collective("allreduce", "backward", 1 << 28, 1 << 28, tuple(range(8)), is_async=True, after=0)

    slow, fast = (collective_seconds(collective, 8, hardware("GAUDI3", estimate)) for estimate in ("slow", "fast"))

    assert fast <= 0.93e-3
    assert slow >= 0.916e-3


def test_usable_memory_is_less_than_that_of_the_card() -> None:
    assert usable_memory("GAUDI2") / (1 << 30) == pytest.approx(94.62, abs=0.01)
