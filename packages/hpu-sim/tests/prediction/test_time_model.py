"""Roofline, fusion, streams, host and collectives of the time model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpu_sim.prediction.collectives import collective_seconds
from hpu_sim.prediction.fusion import count_graphs
from hpu_sim.prediction.hardware import from_ranges, hardware, usable_memory
from hpu_sim.prediction.recording import Collective, Operation, Recording, StepRecording
from hpu_sim.prediction.time_model import mode_of, padding, predict, step_seconds, timeline

if TYPE_CHECKING:
    from hpu_sim.prediction.time_model import Mode

_SIZE = 1 << 30


def _operation(
    *,
    name: str = "aten.op",
    flops: int = 0,
    reads: tuple[int, ...] = (),
    writes: tuple[int, ...] = (),
    size: int = _SIZE,
    **kwargs: Any,
) -> Operation:
    matmul = (1, 1024, 1024, 1024) if flops else None
    return Operation(
        name,
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
    return predict(StepRecording(operations), generation, 8, "lazy" if fuse else "eager", "slow").seconds


def _bytes(operations: list[Operation], **kwargs: Any) -> float:
    """Return the bytes that a step takes to the memory, by the time of a device without any other limit."""
    free = {
        "vector_instructions": (1e-9, 1e-9),
        "kernel_seconds": (0.0, 0.0),
        "start_seconds": (0.0, 0.0),
        "trace_seconds": (0.0, 0.0),
        "launch_seconds": (0.0, 0.0),
        "graph_seconds": (0.0, 0.0),
        "sync_seconds": (0.0, 0.0),
        "engine_overlap": (0.0, 0.0),
    }
    device = from_ranges("GAUDI2", "middle", free)
    step = StepRecording(operations, **kwargs)
    return timeline(step, device, 8, mode="lazy").seconds * device.memory_rate * device.vector_efficiency


def test_a_chain_of_elementwise_operators_reads_and_writes_once() -> None:
    chain = [_operation(reads=(number,), writes=(number + 1,)) for number in range(4)]

    assert _bytes(chain) == pytest.approx(2 * _SIZE)
    assert _seconds(chain, fuse=False) == pytest.approx(4 * _seconds(chain[:1], fuse=False), rel=0.02)


def test_a_value_that_is_needed_later_is_written() -> None:
    chain = [_operation(reads=(0,), writes=(1,)), _operation(reads=(1,), writes=(2,))]
    later = [*chain, _operation(flops=1, reads=(1,))]

    assert _bytes(later) == pytest.approx(4 * _SIZE)


def _reduced(size: int) -> list[Operation]:
    """Return operators that scale a tensor of some bytes by its norm."""
    norm, last = _operation(name="aten.norm", reads=(1,), size=size), _operation(writes=(3,), size=size)
    norm.writes, last.reads = ((2, 4),), ((1, size), (2, 4))
    return [_operation(reads=(0,), writes=(1,), size=size), norm, last]


def test_a_chain_ends_where_the_reduction_of_a_whole_tensor_is_read() -> None:
    """The norm of 1 GiB needs all of its input before the next operator has a value, so that reads it again."""
    assert _bytes(_reduced(_SIZE)) == pytest.approx(4 * _SIZE, rel=1e-4)


def test_a_reduction_that_nothing_reads_ends_no_chain() -> None:
    first, norm, last = _reduced(_SIZE)
    last.reads = ((1, _SIZE),)

    assert _bytes([first, norm, last]) == pytest.approx(2 * _SIZE, rel=1e-4)


def test_small_reductions_stay_on_the_chip() -> None:
    size = 1 << 20

    assert _bytes(_reduced(size)) == pytest.approx(2 * size, rel=1e-4)


def test_reductions_beyond_the_memory_of_the_chip_end_a_chain() -> None:
    """Gaudi 2 has 48 MiB: three tensors of 20 MiB no longer fit, and are read again to be scaled."""
    size = 20 << 20
    norms = [_operation(name="aten.norm", reads=(each,), size=size) for each in range(3)]
    scaled = [_operation(writes=(20 + each,), size=size) for each in range(3)]
    for index, (norm, last) in enumerate(zip(norms, scaled, strict=True)):
        norm.writes, last.reads = ((10 + index, 4),), ((index, size), (10, 4))

    assert _bytes([*norms[:2], *scaled[:2]]) == pytest.approx(4 * size, rel=1e-3)
    assert _bytes([*norms, *scaled]) == pytest.approx(9 * size, rel=1e-3)


def test_a_softmax_of_any_size_stays_in_a_chain() -> None:
    """A row at a time is on the chip."""
    chain = [
        _operation(reads=(0,), writes=(1,)),
        _operation(name="aten._softmax", reads=(1,), writes=(2,)),
        _operation(reads=(2,), writes=(3,)),
    ]

    assert _bytes(chain) == pytest.approx(2 * _SIZE)


@pytest.mark.parametrize(("size", "accesses"), [(_SIZE, 4), (1 << 20, 2)])
def test_a_chain_ends_after_an_operator_that_moves_elements_of_more_than_the_chip_has(size: int, accesses: int) -> None:
    chain = [
        _operation(reads=(0,), writes=(1,), size=size),
        _operation(name="aten.roll", reads=(1,), writes=(2,), size=size),
        _operation(reads=(2,), writes=(3,), size=size),
    ]

    assert _bytes(chain) == pytest.approx(accesses * size)


@pytest.mark.parametrize("event", ["mark_step", "collective"])
def test_a_chain_ends_with_its_graph(event: str) -> None:
    chain = [_operation(reads=(0,), writes=(1,)), _operation(reads=(1,), writes=(2,))]
    call = Collective("allreduce", "forward", 0, 0, (0,), is_async=True, after=1)
    ends: dict[str, Any] = {"graph_ends": [1]} if event == "mark_step" else {"collectives": [call]}

    assert _bytes(chain, **ends) == pytest.approx(4 * _SIZE)


def test_a_long_chain_is_limited_by_the_vector_engines() -> None:
    chain = [_operation(reads=(number,), writes=(number + 1,)) for number in range(40)]

    (span,) = (each for each in predict(StepRecording(chain), "GAUDI2", 8, "lazy", "slow").spans if each.name != "idle")
    assert span.bound == "vector engines"


def _random_operations() -> st.SearchStrategy[list[Operation]]:
    storages = st.integers(0, 12)
    sizes = st.integers(1, 1 << 32)
    shapes = st.tuples(*[st.integers(1, 5000)] * 4)

    def make(name: str, shape: tuple[int, int, int, int], read: int, written: int, size: int) -> Operation:
        batch, rows, columns, inner = shape
        is_product = name == "aten.mm"
        flops = 2 * batch * rows * columns * inner if is_product else 0
        matmul = shape if is_product else None
        return Operation(
            name, "forward", "", "bfloat16", flops, matmul, ((read, size),), ((written, size),), 0,
            host_sync=name == "host_read",
        )  # fmt: skip

    names = st.sampled_from(["aten.mm", "aten.add", "aten.mul", "aten._softmax", "aten.sum", "host_read"])
    return st.lists(st.builds(make, names, shapes, storages, storages, sizes), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(
    operations=_random_operations(),
    generation=st.sampled_from(["GAUDI", "GAUDI2", "GAUDI3"]),
    mode=st.sampled_from(["eager", "lazy", "compile"]),
    overlap=st.floats(0, 1),
)
def test_no_step_is_faster_than_the_roofline(
    operations: list[Operation], generation: str, mode: Any, overlap: float
) -> None:
    """Even with all efficiencies at their ends: not faster than its arithmetic, nor than what must be read."""
    device = from_ranges(generation, "fast", {"engine_overlap": (overlap, overlap)})
    step = StepRecording(operations)

    seconds = timeline(step, device, 8, mode=mode).seconds

    written: set[int] = set()
    inputs: dict[int, int] = {}
    for each in operations:
        if not each.host_sync:
            inputs |= {storage: size for storage, size in each.reads if storage not in {*written, *inputs}}
            written.update(storage for storage, _ in each.writes)
    assert seconds >= step.flops / device.matrix_flops["bfloat16"] * (1 - 1e-9)
    assert seconds >= sum(inputs.values()) / device.memory_rate * (1 - 1e-9)


def test_vector_work_without_a_product_beside_it_is_not_hidden() -> None:
    """A card cannot read faster than its memory."""
    seconds = predict(StepRecording([_operation(reads=(0,), writes=(1,))]), "GAUDI2", 8, "lazy", "fast")

    assert seconds.seconds >= 2 * _SIZE / hardware("GAUDI2", "fast").memory_rate


def test_a_product_with_few_operations_is_limited_by_memory() -> None:
    step = StepRecording([_operation(flops=1, reads=(0,))])

    assert predict(step, "GAUDI3", 8, "lazy", "slow").spans[0].bound == "memory"


@pytest.mark.parametrize(("mode", "starts"), [("eager", 3), ("lazy", 1)])
def test_the_device_starts_every_operator_in_eager_mode_and_a_graph_at_once_in_lazy_mode(
    mode: Mode, starts: int
) -> None:
    step = StepRecording([_operation(reads=(number,), writes=(number + 1,)) for number in range(3)])
    devices = [from_ranges("GAUDI2", "middle", {"start_seconds": (each, each)}) for each in (0.0, 1e-3)]

    before, after = (timeline(step, device, 8, mode=mode).seconds for device in devices)

    assert after - before == pytest.approx(starts * 1e-3)


def test_memory_bandwidth_tells_generations_apart_where_memory_limits() -> None:
    operations = [_operation(reads=(0,), writes=(1,), size=8 * _SIZE)]

    ratio = _seconds(operations) / _seconds(operations, generation="GAUDI3")
    assert ratio == pytest.approx(3.67 / 2.46, rel=0.01)


def test_padding_counts_every_dimension() -> None:
    assert padding((8, 128, 100, 64), "bfloat16") == pytest.approx(1.28 * 2)


def test_an_asynchronous_collective_runs_beside_computation() -> None:
    operation = _operation(reads=(0,), writes=(1,))
    collective = Collective("allreduce", "backward", 1 << 20, 1 << 20, tuple(range(8)), is_async=True, after=0)
    step = StepRecording([operation], [collective])

    beside = predict(step, "GAUDI2", 8, "eager", "slow")
    collective.is_async = False
    before = predict(step, "GAUDI2", 8, "eager", "slow")

    assert beside.exposed == 0
    assert before.seconds == pytest.approx(beside.seconds + before.exposed)


def test_an_operator_waits_for_the_collective_that_it_reads() -> None:
    collective = Collective("allreduce", "backward", 1 << 30, 1 << 30, tuple(range(64)), is_async=True, after=0)
    step = StepRecording([_operation(reads=(0,), writes=(1,), waits_for=(0,))], [collective])

    predicted = predict(step, "GAUDI2", 8, "lazy", "slow")

    seconds = collective_seconds(collective, 8, hardware("GAUDI2", "slow"))
    assert predicted.exposed == pytest.approx(seconds, rel=0.01)
    assert predicted.seconds >= seconds + 2 * _SIZE / hardware("GAUDI2", "slow").memory_rate


@pytest.mark.parametrize(("name", "passes"), [("broadcast", 2), ("reduce", 2), ("allreduce", 2), ("allgather_base", 1)])
def test_a_collective_passes_over_the_data(name: str, passes: int) -> None:
    device = hardware("GAUDI2", "slow")
    call = Collective(name, "backward", 1 << 30, 1 << 30, tuple(range(8)), is_async=True, after=0)

    expected = device.collective_seconds + passes * (1 << 30) / 8 / device.peer_rate
    assert collective_seconds(call, 8, device) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["send", "recv"])
def test_one_rank_sends_all_to_one_other(name: str) -> None:
    device = hardware("GAUDI2", "slow")
    call = Collective(name, "forward", 1 << 30, 1 << 30, tuple(range(8)), is_async=True, after=0)

    expected = device.collective_seconds + (1 << 30) / device.peer_rate
    assert collective_seconds(call, 8, device) == pytest.approx(expected)


def _small(count: int, **kwargs: Any) -> StepRecording:
    operations = [_operation(reads=(each,), writes=(each + 1,), size=64) for each in range(count)]
    return StepRecording(operations, **kwargs)


def test_the_host_limits_small_steps_in_every_mode() -> None:
    device = hardware("GAUDI2", "slow")
    step = _small(1000, graph_ends=[1000])

    eager, lazy, compiled = (predict(step, "GAUDI2", 8, mode, "slow").seconds for mode in ("eager", "lazy", "compile"))

    assert eager == pytest.approx(1000 * device.launch_seconds, rel=0.01)
    assert lazy == pytest.approx(1000 * device.trace_seconds + device.graph_seconds, rel=0.01)
    assert compiled == pytest.approx(device.graph_seconds, rel=0.05)


def test_the_host_runs_ahead_until_it_reads_a_value() -> None:
    """Without a read, the host traces the next step while the card works; with one, it traces while the card idles."""
    device = hardware("GAUDI2", "slow")
    step = _small(1000)
    step.operations += [_operation(reads=(number,), writes=(number + 1,)) for number in range(1000, 1100)]
    step.graph_ends = [len(step.operations)]
    before = predict(step, "GAUDI2", 8, "lazy", "slow")
    read = Operation("host_read", "forward", "", "", 0, None, (), (), 0, host_sync=True)
    step.operations.append(read)
    after = predict(step, "GAUDI2", 8, "lazy", "slow")

    work = sum(each.seconds for each in after.spans if each.bound != "host")
    assert after.seconds == pytest.approx(work + 1100 * device.trace_seconds, rel=0.02)
    assert before.seconds == pytest.approx(max(work, 1100 * device.trace_seconds), rel=0.02)


def test_a_fused_kernel_of_the_bridge_is_one_launch() -> None:
    step = _small(1000, graph_ends=[1000])
    for each in step.operations:
        each.is_launched = False

    seconds = predict(step, "GAUDI2", 8, "lazy", "slow").seconds
    assert seconds < 100 * hardware("GAUDI2", "slow").trace_seconds


def test_a_slow_loader_limits_the_step() -> None:
    step = _small(10, graph_ends=[10])
    step.worker_seconds = 2.0
    assert predict(step, "GAUDI2", 8, "lazy", "middle").seconds == pytest.approx(2.0, rel=0.01)

    step.worker_seconds, step.loader_seconds = 0.0, 3.0
    assert predict(step, "GAUDI2", 8, "lazy", "middle").seconds == pytest.approx(3.0, rel=0.01)


def test_graphs_are_counted() -> None:
    """Two steps of equal operators are one graph; under compile, each direction is one."""
    forward = [_operation(reads=(0,), writes=(1,)), _operation(reads=(1,), writes=(2,))]
    backward = [Operation("aten.op", "backward", "", "bfloat16", 0, None, (), (), 7)]

    assert count_graphs(StepRecording([*forward, *forward], graph_ends=[2]), is_lazy=True) == 1
    assert count_graphs(StepRecording([*forward, *backward]), is_lazy=False) == 2
    assert count_graphs(StepRecording([*forward, *backward, *forward]), is_lazy=False) == 2


def test_a_recording_is_predicted_in_its_own_mode() -> None:
    step = _small(1000)
    recording = Recording(("",), 0, 1, 1, compiled=True, steps=[step])

    seconds = predict(step, "GAUDI2", 1, mode_of(recording), "slow").seconds

    assert mode_of(recording) == "compile"
    assert seconds < 1000 * hardware("GAUDI2", "slow").trace_seconds


def test_products_in_float8_have_their_own_peak() -> None:
    """With their casts, they take a little more than half the time."""
    product = _operation(flops=1 << 44, reads=(0,), writes=(1,), size=1024)
    half = _seconds([product])
    product.dtype = "float8"
    recorded = _seconds([product])
    product.dtype = "bfloat16"
    assumed = step_seconds(StepRecording([product]), hardware("GAUDI2", "slow"), 8, mode="lazy", float8=True)

    assert recorded == pytest.approx(half * 432 / 865, rel=0.05)
    assert recorded < assumed < half


def test_a_host_sync_drains_the_queue() -> None:
    work = _operation(reads=(0,), writes=(1,))
    sync = Operation("host_read", "forward", "", "", 0, None, (), (), 0, host_sync=True)

    timeline = predict(StepRecording([work, sync, work]), "GAUDI2", 8, "eager", "slow")

    assert timeline.host >= hardware("GAUDI2", "slow").sync_seconds


def test_published_collectives_are_in_the_range() -> None:
    """Intel's page on collectives has 0.916 ms for all_reduce of 256 MiB on 8 cards, and 512.96 GB/s on the links."""
    collective = Collective("allreduce", "backward", 1 << 28, 1 << 28, tuple(range(8)), is_async=True, after=0)

    slow, fast = (collective_seconds(collective, 8, hardware("GAUDI3", estimate)) for estimate in ("slow", "fast"))

    assert fast <= 0.93e-3
    assert slow >= 0.916e-3


def test_usable_memory_is_less_than_that_of_the_card() -> None:
    assert usable_memory("GAUDI2") / (1 << 30) == pytest.approx(94.62, abs=0.01)
