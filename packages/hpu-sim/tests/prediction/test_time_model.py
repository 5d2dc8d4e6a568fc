"""Roofline, engines, host and collectives of the time model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpu_sim.prediction.fusion import count_graphs
from hpu_sim.prediction.hardware import hardware, set_figures, spread
from hpu_sim.prediction.recording import Collective, Operation, StepRecording
from hpu_sim.prediction.time_model import STARTS, collective_seconds

from .predicting import SIZE, clock_of, make_operation, predict, random_operations

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import Mode
    from hpu_sim.prediction.time_model import Timeline


def _seconds(operations: list[Operation], *, fuse: bool = True, generation: str = "GAUDI2") -> float:
    return predict(StepRecording(operations), generation, "lazy" if fuse else "eager").seconds


@settings(max_examples=100, deadline=None)
@given(
    operations=random_operations(),
    generation=st.sampled_from(["GAUDI", "GAUDI2", "GAUDI3"]),
    mode=st.sampled_from(["eager", "lazy", "compile"]),
)
def test_no_step_is_faster_than_the_roofline(operations: list[Operation], generation: str, mode: Mode) -> None:
    """Neither than its arithmetic, nor than what must be read; and it is the sum of what the device does."""
    step, device = StepRecording(operations), hardware(generation)

    timeline = clock_of(step, generation, mode).timeline

    written: set[int] = set()
    inputs: dict[int, int] = {}
    for each in operations:
        if not each.host_sync:
            inputs |= {storage: size for storage, size in each.reads if storage not in {*written, *inputs}}
            written.update(storage for storage, _ in each.writes)
    flops = sum(each.flops for each in operations if not each.host_sync)
    assert timeline.seconds >= flops / device.peaks["bfloat16"] * (1 - 1e-9)
    assert timeline.seconds >= sum(inputs.values()) / device.memory_rate * (1 - 1e-9)
    spans = [each for each in timeline.spans if each.stream == "compute"]
    assert sum(each.seconds for each in spans) == pytest.approx(timeline.seconds)
    assert sum(sum(each.parts.values()) for each in spans) == pytest.approx(timeline.seconds)


def test_a_product_with_few_operations_is_limited_by_memory() -> None:
    (span,) = predict(StepRecording([make_operation(flops=1, reads=(0,))]), "GAUDI3").spans[-1:]

    assert (span.bound, span.is_product) == ("memory", True)


def test_many_small_operators_are_limited_by_their_starts() -> None:
    """The host launches the next step meanwhile, so it is the device that starts them."""
    set_figures(["start_seconds=1e-3"])
    try:
        (*_, span) = predict(_small(100), mode="eager").spans
    finally:
        set_figures([])

    assert max(span.parts, key=span.parts.__getitem__) == STARTS


@pytest.mark.parametrize(("mode", "starts"), [("eager", 3), ("lazy", 1)])
def test_the_device_starts_every_operator_in_eager_mode_and_a_graph_at_once_in_lazy_mode(
    mode: Mode, starts: int
) -> None:
    step = StepRecording([make_operation(reads=(number,), writes=(number + 1,)) for number in range(3)])
    seconds = []
    try:
        for each in (0.0, 1e-3):
            set_figures([f"start_seconds={each}"])
            seconds.append(predict(step, mode=mode).seconds)
    finally:
        set_figures([])

    assert seconds[1] - seconds[0] == pytest.approx(starts * 1e-3)


def test_memory_bandwidth_tells_generations_apart_where_memory_limits() -> None:
    operations = [make_operation(reads=(0,), writes=(1,), size=8 * SIZE)]

    ratio = _seconds(operations) / _seconds(operations, generation="GAUDI3")
    assert ratio == pytest.approx(3.67 / 2.46, rel=0.01)


def _waited(timeline: Timeline) -> float:
    """Return the seconds in which the device waits for the network."""
    return sum(each.seconds for each in timeline.spans if each.stream == "compute" and each.bound == "network")


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_an_asynchronous_collective_runs_beside_computation(mode: Mode) -> None:
    operation = make_operation(reads=(0,), writes=(1,))
    collective = Collective("allreduce", "backward", 1 << 20, 1 << 20, tuple(range(8)), is_async=True, after=0)
    step = StepRecording([operation], [collective])

    beside = predict(step, mode=mode)
    collective.is_async = False
    before = predict(step, mode=mode)

    assert _waited(beside) == 0
    assert before.seconds == pytest.approx(beside.seconds + _waited(before))


def test_an_operator_waits_for_the_collective_that_it_reads() -> None:
    collective = Collective("allreduce", "backward", 1 << 30, 1 << 30, tuple(range(64)), is_async=True, after=0)
    step = StepRecording([make_operation(reads=(0,), writes=(1,), waits_for=(0,))], [collective])

    predicted = predict(step)

    seconds = collective_seconds(collective, 8, hardware("GAUDI2"))
    assert _waited(predicted) == pytest.approx(seconds, rel=0.01)
    assert predicted.seconds >= seconds + 2 * SIZE / hardware("GAUDI2").memory_rate


@pytest.mark.parametrize(("name", "passes"), [("broadcast", 2), ("reduce", 2), ("allreduce", 2), ("allgather_base", 1)])
def test_a_collective_passes_over_the_data(name: str, passes: int) -> None:
    device = hardware("GAUDI2")
    call = Collective(name, "backward", 1 << 30, 1 << 30, tuple(range(8)), is_async=True, after=0)

    expected = device.collective_seconds + passes * (1 << 30) / 8 / device.peer_rate
    assert collective_seconds(call, 8, device) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["send", "recv"])
def test_one_rank_sends_all_to_one_other(name: str) -> None:
    device = hardware("GAUDI2")
    call = Collective(name, "forward", 1 << 30, 1 << 30, tuple(range(8)), is_async=True, after=0)

    expected = device.collective_seconds + (1 << 30) / device.peer_rate
    assert collective_seconds(call, 8, device) == pytest.approx(expected)


def test_pcie_cards_are_linked_in_groups_of_four() -> None:
    """Six links per pair instead of three, and a switch between the groups."""
    device = hardware("GAUDI2")
    pcie = replace(device, box=4, peer_rate=device.peer_rate * 7 / 3)
    call = Collective("allreduce", "backward", 1 << 30, 1 << 30, tuple(range(8)), is_async=True, after=0)

    four = replace(call, ranks=tuple(range(4)))
    assert collective_seconds(four, 8, pcie) < collective_seconds(four, 8, device)
    assert collective_seconds(call, 8, pcie) > 2 * collective_seconds(call, 8, device)


def _small(count: int, **kwargs: Any) -> StepRecording:
    operations = [make_operation(reads=(each,), writes=(each + 1,), size=64) for each in range(count)]
    return StepRecording(operations, **kwargs)


def test_the_host_limits_small_steps_in_every_mode() -> None:
    device = hardware("GAUDI2")
    step = _small(1000, graph_ends=[1000])

    eager, lazy, compiled = (predict(step, mode=mode).seconds for mode in ("eager", "lazy", "compile"))

    assert eager == pytest.approx(1000 * device.launch_seconds, rel=0.01)
    assert lazy == pytest.approx(1000 * device.trace_seconds + device.graph_seconds, rel=0.01)
    assert compiled == pytest.approx(device.graph_seconds, rel=0.05)


def test_the_host_runs_ahead_until_it_reads_a_value() -> None:
    """Without a read, the host traces the next step while the card works; with one, it traces while the card idles."""
    device = hardware("GAUDI2")
    step = _small(1000)
    step.operations += [make_operation(reads=(number,), writes=(number + 1,)) for number in range(1000, 1100)]
    step.graph_ends = [len(step.operations)]
    before = predict(step)
    read = Operation("host_read", "forward", "", "", 0, (), (), 0, host_sync=True)
    step.operations.append(read)
    after = predict(step)

    work = sum(each.seconds for each in after.spans if each.bound != "host")
    assert after.seconds == pytest.approx(work + 1100 * device.trace_seconds, rel=0.02)
    assert before.seconds == pytest.approx(max(work, 1100 * device.trace_seconds), rel=0.02)


def test_a_fused_kernel_of_the_bridge_is_one_launch() -> None:
    step = _small(1000, graph_ends=[1000])
    for each in step.operations:
        each.is_launched = False

    seconds = predict(step).seconds
    assert seconds < 100 * hardware("GAUDI2").trace_seconds


def test_graphs_are_counted() -> None:
    """Two steps of equal operators are one graph; under compile, each direction is one."""
    forward = [make_operation(reads=(0,), writes=(1,)), make_operation(reads=(1,), writes=(2,))]
    backward = [Operation("aten.op", "backward", "", "bfloat16", 0, (), (), 7)]

    assert count_graphs(StepRecording([*forward, *forward], graph_ends=[2]), "lazy") == 1
    assert count_graphs(StepRecording([*forward, *backward]), "compile") == 2
    assert count_graphs(StepRecording([*forward, *backward, *forward]), "compile") == 2


def test_products_in_float8_have_their_own_peak() -> None:
    product = make_operation(flops=1 << 40, reads=(0,), writes=(1,), size=1024)
    half = _seconds([product])
    product.dtype = "float8"

    assert _seconds([product]) == pytest.approx(half * 432 / 865, rel=0.05)


def test_a_host_sync_drains_the_queue() -> None:
    work = make_operation(reads=(0,), writes=(1,))
    sync = Operation("host_read", "forward", "", "", 0, (), (), 0, host_sync=True)

    timeline = predict(StepRecording([work, sync, work]), mode="eager")

    idle = sum(each.seconds for each in timeline.spans if each.bound == "host")
    assert idle >= hardware("GAUDI2").sync_seconds


def test_published_collectives_are_in_the_range() -> None:
    """Intel's page on collectives has 0.916 ms for all_reduce of 256 MiB on 8 cards, and 512.96 GB/s on the links."""
    collective = Collective("allreduce", "backward", 1 << 28, 1 << 28, tuple(range(8)), is_async=True, after=0)

    assert collective_seconds(collective, 8, hardware("GAUDI3")) == pytest.approx(0.916e-3, rel=0.03)


def test_a_range_is_the_time_with_what_published_steps_differ_by() -> None:
    """Of a step that the host limits."""
    clock, device = clock_of(_small(1000, graph_ends=[1000])), hardware("GAUDI2")
    seconds = 1000 * device.trace_seconds + device.graph_seconds

    assert clock.timeline.seconds == pytest.approx(seconds, rel=0.01)
    assert clock.range() == pytest.approx((clock.timeline.seconds / spread(), clock.timeline.seconds * spread()))
