"""Roofline, engines, host and collectives of the time model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpu_sim.prediction.collectives import collective_seconds
from hpu_sim.prediction.fusion import count_graphs
from hpu_sim.prediction.hardware import from_ranges, hardware, ranges, usable_memory
from hpu_sim.prediction.recording import Collective, Operation, Product, Recording, StepRecording
from hpu_sim.prediction.time_model import Schedule, mode_of

from .predicting import predict

if TYPE_CHECKING:
    from hpu_sim.prediction.time_model import Mode

_SIZE = 1 << 30


def _operation(  # noqa: PLR0913 - the fields that tests vary
    *,
    name: str = "aten.op",
    flops: int = 0,
    reads: tuple[int, ...] = (),
    writes: tuple[int, ...] = (),
    size: int = _SIZE,
    matmul_size: int = 1024,
    **kwargs: Any,
) -> Operation:
    products = (Product(1, matmul_size, matmul_size, matmul_size),) if flops else ()
    return Operation(
        name,
        "forward",
        "",
        "bfloat16",
        flops,
        products,
        tuple((each, size) for each in reads),
        tuple((each, size) for each in writes),
        0,
        **kwargs,
    )


def _seconds(operations: list[Operation], *, fuse: bool = True, generation: str = "GAUDI2") -> float:
    return predict(StepRecording(operations), generation, 8, "lazy" if fuse else "eager").seconds


def _random_operations() -> st.SearchStrategy[list[Operation]]:
    storages = st.integers(0, 12)
    sizes = st.integers(1, 1 << 32)
    shapes = st.tuples(*[st.integers(1, 5000)] * 4)

    def make(name: str, shape: tuple[int, int, int, int], read: int, written: int, size: int) -> Operation:
        batch, rows, columns, inner = shape
        is_product = name == "aten.mm"
        flops = 2 * batch * rows * columns * inner if is_product else 0
        products = (Product(*shape),) if is_product else ()
        return Operation(
            name, "forward", "", "bfloat16", flops, products, ((read, size),), ((written, size),), 0,
            host_sync=name == "host_read",
        )  # fmt: skip

    names = st.sampled_from(["aten.mm", "aten.add", "aten.mul", "aten._softmax", "aten.sum", "host_read"])
    return st.lists(st.builds(make, names, shapes, storages, storages, sizes), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(
    operations=_random_operations(),
    generation=st.sampled_from(["GAUDI", "GAUDI2", "GAUDI3"]),
    mode=st.sampled_from(["eager", "lazy", "compile"]),
    parts=st.floats(1, 1e9),
)
def test_no_step_is_faster_than_the_roofline(
    operations: list[Operation], generation: str, mode: Any, parts: float
) -> None:
    """Even with all efficiencies at their ends: not faster than its arithmetic, nor than what must be read."""
    overlap = dict.fromkeys(("pipeline_parts", "bundle_slices"), (parts, parts))
    ends = {name: (fast, fast) for name, (_, fast) in ranges(generation).items()}
    device = from_ranges(generation, ends | overlap)
    step = StepRecording(operations)

    seconds = Schedule(step, device, 8, mode).seconds()

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
    seconds = predict(StepRecording([_operation(reads=(0,), writes=(1,))]), "GAUDI2", 8, "lazy")

    assert seconds.seconds >= 2 * _SIZE / hardware("GAUDI2").memory_rate


def test_a_product_with_few_operations_is_limited_by_memory() -> None:
    step = StepRecording([_operation(flops=1, reads=(0,))])

    (span,) = (each for each in predict(step, "GAUDI3", 8, "lazy").spans if each.engine)
    assert span.bound == "memory"


@pytest.mark.parametrize(("mode", "starts"), [("eager", 3), ("lazy", 1)])
def test_the_device_starts_every_operator_in_eager_mode_and_a_graph_at_once_in_lazy_mode(
    mode: Mode, starts: int
) -> None:
    step = StepRecording([_operation(reads=(number,), writes=(number + 1,)) for number in range(3)])
    devices = [from_ranges("GAUDI2", {"start_seconds": (each, each)}) for each in (0.0, 1e-3)]

    before, after = (Schedule(step, device, 8, mode).seconds() for device in devices)

    assert after - before == pytest.approx(starts * 1e-3)


def test_memory_bandwidth_tells_generations_apart_where_memory_limits() -> None:
    operations = [_operation(reads=(0,), writes=(1,), size=8 * _SIZE)]

    ratio = _seconds(operations) / _seconds(operations, generation="GAUDI3")
    assert ratio == pytest.approx(3.67 / 2.46, rel=0.01)


def _pair(*, is_linked: bool) -> list[Operation]:
    """Return a product of about 1 ms on GAUDI2, and vector work of about 1 ms, which may read its result."""
    size = 1 << 29
    product = Operation(
        "aten.mm", "forward", "", "bfloat16", 1, (Product(1, 8192, 8192, 3072),), (), ((1, size),), 0
    )  # fmt: skip
    # A second reader, so that neither the fuser nor a bundle keeps the value.
    return [product, _operation(reads=(1 if is_linked else 7,), writes=(2,), size=size)]


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_neighbours_on_two_engines_run_beside_each_other_in_a_graph(mode: Mode) -> None:
    """All of the shorter one is hidden, but for the first part of what it waits for; nothing in eager mode."""
    alone = [predict(StepRecording([each]), "GAUDI2", 8, "eager").seconds for each in _pair(is_linked=False)]

    apart = predict(StepRecording(_pair(is_linked=False)), "GAUDI2", 8, mode).seconds
    linked = predict(StepRecording(_pair(is_linked=True)), "GAUDI2", 8, mode).seconds

    if mode == "eager":
        assert apart == linked == pytest.approx(sum(alone), rel=0.01)
    else:
        assert apart == pytest.approx(max(alone), rel=0.05)
        assert max(alone) < linked < sum(alone)


def test_a_kernel_does_not_run_beside_one_that_is_further_back() -> None:
    """Of three kernels that need nothing of each other, the third begins when the first has ended."""
    first, second = _pair(is_linked=False)
    third = _operation(name="aten.copy_", reads=(8,), writes=(9,), size=1 << 20)
    spans = [each for each in predict(StepRecording([first, second, third]), "GAUDI2", 8, "lazy").spans if each.engine]

    end_of_first = spans[0].end
    assert spans[1].began < end_of_first
    assert spans[2].began >= end_of_first


def test_engines_share_the_memory() -> None:
    """Two kernels that the memory limits take as long beside each other as one after the other."""
    product = _operation(flops=1, reads=(0,), writes=(1,))
    product.products = (Product(1, 8, 8, 8),)
    work = _operation(reads=(2,), writes=(3,))

    both = predict(StepRecording([product, work]), "GAUDI2", 8, "lazy").seconds

    assert both >= 4 * _SIZE / hardware("GAUDI2").memory_rate


def test_special_functions_limit_the_vector_engines() -> None:
    simple, special = (
        predict(StepRecording([_operation(name=name, reads=(0,), writes=(1,))]), "GAUDI2", 8, "lazy").spans[-1]
        for name in ("aten.add", "aten.gelu")
    )

    assert (simple.bound, special.bound) == ("memory", "vector engines")
    assert special.seconds > simple.seconds


def test_fused_attention_has_the_vector_work_of_its_scores() -> None:
    """They never leave the chip, but the vector engines take their exponentials."""
    products = (Product(128, 4096, 4096, 64, "abt"), Product(128, 4096, 64, 4096))
    attention = _operation(name="aten._scaled_dot_product_flash_attention", flops=1, reads=(0,), size=1 << 20)
    attention.products = products

    (span,) = (each for each in predict(StepRecording([attention]), "GAUDI2", 8, "lazy").spans if each.engine)

    device = hardware("GAUDI2")
    assert span.seconds >= 2 * 128 * 4096**2 * device.special_cycles / device.vector_rate


def test_a_depthwise_convolution_is_vector_work() -> None:
    """512 products with one column each would leave the matrix engine empty."""
    convolution = _operation(name="aten.convolution", flops=1 << 34, reads=(0,), writes=(1,))
    convolution.products = (Product(512, 1 << 14, 1, 9),)

    (span,) = (each for each in predict(StepRecording([convolution]), "GAUDI2", 8, "lazy").spans if each.engine)

    assert span.engine == "vector"


def test_a_transpose_between_graphs_runs_on_the_copy_engine() -> None:
    copy = _operation(name="aten.clone", reads=(0,), writes=(1,), rows=(2, 4096))
    engines = {
        generation: [each.engine for each in predict(StepRecording([copy]), generation, 8, "lazy").spans if each.engine]
        for generation in ("GAUDI2", "GAUDI3")
    }

    assert engines == {"GAUDI2": ["copy"], "GAUDI3": ["matrix"]}


def test_an_asynchronous_collective_runs_beside_computation() -> None:
    operation = _operation(reads=(0,), writes=(1,))
    collective = Collective("allreduce", "backward", 1 << 20, 1 << 20, tuple(range(8)), is_async=True, after=0)
    step = StepRecording([operation], [collective])

    beside = predict(step, "GAUDI2", 8, "eager")
    collective.is_async = False
    before = predict(step, "GAUDI2", 8, "eager")

    assert beside.exposed == 0
    assert before.seconds == pytest.approx(beside.seconds + before.exposed)


def test_an_operator_waits_for_the_collective_that_it_reads() -> None:
    collective = Collective("allreduce", "backward", 1 << 30, 1 << 30, tuple(range(64)), is_async=True, after=0)
    step = StepRecording([_operation(reads=(0,), writes=(1,), waits_for=(0,))], [collective])

    predicted = predict(step, "GAUDI2", 8, "lazy")

    seconds = collective_seconds(collective, 8, hardware("GAUDI2"))
    assert predicted.exposed == pytest.approx(seconds, rel=0.01)
    assert predicted.seconds >= seconds + 2 * _SIZE / hardware("GAUDI2").memory_rate


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
    operations = [_operation(reads=(each,), writes=(each + 1,), size=64) for each in range(count)]
    return StepRecording(operations, **kwargs)


def test_the_host_limits_small_steps_in_every_mode() -> None:
    device = hardware("GAUDI2")
    step = _small(1000, graph_ends=[1000])

    eager, lazy, compiled = (predict(step, "GAUDI2", 8, mode).seconds for mode in ("eager", "lazy", "compile"))

    assert eager == pytest.approx(1000 * device.launch_seconds, rel=0.01)
    assert lazy == pytest.approx(1000 * device.trace_seconds + device.graph_seconds, rel=0.01)
    assert compiled == pytest.approx(device.graph_seconds, rel=0.05)


def test_the_host_runs_ahead_until_it_reads_a_value() -> None:
    """Without a read, the host traces the next step while the card works; with one, it traces while the card idles."""
    device = hardware("GAUDI2")
    step = _small(1000)
    step.operations += [_operation(reads=(number,), writes=(number + 1,)) for number in range(1000, 1100)]
    step.graph_ends = [len(step.operations)]
    before = predict(step, "GAUDI2", 8, "lazy")
    read = Operation("host_read", "forward", "", "", 0, (), (), (), 0, host_sync=True)
    step.operations.append(read)
    after = predict(step, "GAUDI2", 8, "lazy")

    work = sum(each.seconds for each in after.spans if each.bound != "host")
    assert after.seconds == pytest.approx(work + 1100 * device.trace_seconds, rel=0.02)
    assert before.seconds == pytest.approx(max(work, 1100 * device.trace_seconds), rel=0.02)


def test_a_fused_kernel_of_the_bridge_is_one_launch() -> None:
    step = _small(1000, graph_ends=[1000])
    for each in step.operations:
        each.is_launched = False

    seconds = predict(step, "GAUDI2", 8, "lazy").seconds
    assert seconds < 100 * hardware("GAUDI2").trace_seconds


def test_a_slow_loader_limits_the_step() -> None:
    step = _small(10, graph_ends=[10])
    step.worker_seconds = 2.0
    assert predict(step, "GAUDI2", 8, "lazy").seconds == pytest.approx(2.0, rel=0.01)

    step.worker_seconds, step.loader_seconds = 0.0, 3.0
    assert predict(step, "GAUDI2", 8, "lazy").seconds == pytest.approx(3.0, rel=0.01)


def test_graphs_are_counted() -> None:
    """Two steps of equal operators are one graph; under compile, each direction is one."""
    forward = [_operation(reads=(0,), writes=(1,)), _operation(reads=(1,), writes=(2,))]
    backward = [Operation("aten.op", "backward", "", "bfloat16", 0, (), (), (), 7)]

    assert count_graphs(StepRecording([*forward, *forward], graph_ends=[2]), is_lazy=True) == 1
    assert count_graphs(StepRecording([*forward, *backward]), is_lazy=False) == 2
    assert count_graphs(StepRecording([*forward, *backward, *forward]), is_lazy=False) == 2


def test_a_recording_is_predicted_in_its_own_mode() -> None:
    step = _small(1000)
    recording = Recording(("",), 0, 1, 1, compiled=True, steps=[step])

    seconds = predict(step, "GAUDI2", 1, mode_of(recording)).seconds

    assert mode_of(recording) == "compile"
    assert seconds < 1000 * hardware("GAUDI2").trace_seconds


def test_products_in_float8_have_their_own_peak() -> None:
    product = _operation(flops=1, reads=(0,), writes=(1,), size=1024)
    product.products = (Product(1, 8192, 8192, 8192),)
    half = _seconds([product])
    product.dtype = "float8"

    assert _seconds([product]) == pytest.approx(half * 432 / 865, rel=0.05)


def test_a_host_sync_drains_the_queue() -> None:
    work = _operation(reads=(0,), writes=(1,))
    sync = Operation("host_read", "forward", "", "", 0, (), (), (), 0, host_sync=True)

    timeline = predict(StepRecording([work, sync, work]), "GAUDI2", 8, "eager")

    idle = sum(each.seconds for each in timeline.spans if each.bound == "host")
    assert idle >= hardware("GAUDI2").sync_seconds


def test_published_collectives_are_in_the_range() -> None:
    """Intel's page on collectives has 0.916 ms for all_reduce of 256 MiB on 8 cards, and 512.96 GB/s on the links."""
    collective = Collective("allreduce", "backward", 1 << 28, 1 << 28, tuple(range(8)), is_async=True, after=0)

    figures = ("collective_seconds", "in_box_efficiency")
    ends = ({name: (ranges("GAUDI3")[name][end],) * 2 for name in figures} for end in (0, 1))
    slow, fast = (collective_seconds(collective, 8, from_ranges("GAUDI3", each)) for each in ends)

    assert fast <= 0.93e-3
    assert slow >= 0.916e-3


def test_usable_memory_is_less_than_that_of_the_card() -> None:
    assert usable_memory("GAUDI2") / (1 << 30) == pytest.approx(94.62, abs=0.01)
