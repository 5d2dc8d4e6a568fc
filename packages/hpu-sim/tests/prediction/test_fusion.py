"""Kernels of graphs, and what of their values reaches the card's memory."""

from __future__ import annotations

from typing import Any

import pytest

from hpu_sim.prediction.fusion import Kernel, segments
from hpu_sim.prediction.hardware import hardware
from hpu_sim.prediction.recording import Collective, Operation, Product, StepRecording

_SIZE = 1 << 30


def _operation(
    name: str, reads: tuple[int, ...], writes: tuple[int, ...], size: int = _SIZE, **kwargs: Any
) -> Operation:
    read, written = (tuple((each, size) for each in group) for group in (reads, writes))
    return Operation(f"aten.{name}", "forward", "", "bfloat16", 0, (), read, written, 0, **kwargs)


def _product(reads: tuple[int, ...], writes: tuple[int, ...], size: int = _SIZE, edge: int = 1024) -> Operation:
    read, written = (tuple((each, size) for each in group) for group in (reads, writes))
    return Operation(
        "aten.mm", "forward", "", "bfloat16", 2 * edge**3, (Product(1, edge, edge, edge),), read, written, 0
    )


def _kernels(operations: list[Operation], generation: str = "GAUDI2", **kwargs: Any) -> list[Kernel]:
    step = StepRecording(operations, **kwargs)
    found = segments(step, hardware(generation), fuse=True, by_phase=False)
    return [kernel for segment in found for kernel in segment.kernels]


def _accesses(operations: list[Operation], generation: str = "GAUDI2", **kwargs: Any) -> float:
    """Return how many times 1 GiB moves between the chip and the memory."""
    return sum(kernel.bytes for kernel in _kernels(operations, generation, **kwargs)) / _SIZE


def test_a_chain_of_elementwise_operators_reads_and_writes_once() -> None:
    chain = [_operation("add", (number,), (number + 1,)) for number in range(4)]

    assert len(_kernels(chain)) == 1
    assert _accesses(chain) == pytest.approx(2)


def test_in_eager_mode_every_operator_reads_and_writes() -> None:
    step = StepRecording([_operation("add", (number,), (number + 1,)) for number in range(4)])
    (segment,) = segments(step, hardware("GAUDI2"), fuse=False, by_phase=False)

    assert sum(each.bytes for each in segment.kernels) == pytest.approx(8 * _SIZE)


def test_a_value_with_two_uses_ends_a_kernel() -> None:
    """Such as one that the backward pass needs: it is written, and read by each."""
    chain = [_operation("add", (0,), (1,)), _operation("mul", (1,), (2,)), _operation("sub", (1, 2), (3,))]

    assert [len(each.operations) for each in _kernels(chain)] == [1, 2]
    assert _accesses(chain) == pytest.approx(4)


def test_branches_with_one_use_each_are_one_kernel() -> None:
    tree = [_operation("add", (0,), (1,)), _operation("mul", (2,), (3,)), _operation("sub", (1, 3), (4,))]

    assert [len(each.operations) for each in _kernels(tree)] == [3]
    assert _accesses(tree) == pytest.approx(3)


def test_a_value_that_is_overwritten_in_place_stays_in_its_kernel() -> None:
    chain = [_operation("mul_", (0,), (0,)), _operation("add_", (0, 1), (0,))]

    assert _accesses(chain) == pytest.approx(3)


@pytest.mark.parametrize("name", ["_softmax", "native_layer_norm", "embedding", "roll"])
def test_what_needs_more_than_its_own_place_is_a_kernel_of_its_own(name: str) -> None:
    chain = [_operation("add", (0,), (1,)), _operation(name, (1,), (2,)), _operation("mul", (2,), (3,))]

    assert [len(each.operations) for each in _kernels(chain)] == [1, 1, 1]
    assert _accesses(chain) == pytest.approx(6)


def test_a_kernel_has_at_most_sixteen_tensors() -> None:
    tree = [_operation("add", (100 + number,), (number,)) for number in range(20)]
    tree += [_operation("sub", tuple(range(20)), (99,))]

    assert max(len(each.operations) for each in _kernels(tree)) <= 17


@pytest.mark.parametrize("event", ["mark_step", "collective"])
def test_a_kernel_ends_with_its_graph(event: str) -> None:
    chain = [_operation("add", (0,), (1,)), _operation("mul", (1,), (2,))]
    call = Collective("allreduce", "forward", 0, 0, (0,), is_async=True, after=1)
    ends: dict[str, Any] = {"graph_ends": [1]} if event == "mark_step" else {"collectives": [call]}

    assert _accesses(chain, **ends) == pytest.approx(4)


def test_a_fused_kernel_of_the_bridge_is_one_kernel() -> None:
    chain = [_operation("mul_", (0,), (0,)), _operation("norm", (1,), (2,)), _operation("add_", (0, 1), (0,))]
    for each in chain[1:]:
        each.is_launched = False

    assert [len(each.operations) for each in _kernels(chain)] == [3]


def test_concatenations_move_nothing() -> None:
    parts = [_operation("add", (0,), (1,)), _operation("add", (2,), (3,)), _operation("cat", (1, 3), (4,), 2 * _SIZE)]
    parts[2].reads = ((1, _SIZE), (3, _SIZE))
    last = _operation("_softmax", (4,), (5,), 2 * _SIZE)

    assert len(_kernels([*parts, last])) == 3
    assert _accesses([*parts, last]) == pytest.approx(2 + 2 + 4)


def test_a_copy_between_what_is_kept_outside_is_made() -> None:
    assert _accesses([_operation("cat", (0,), (1,))]) == pytest.approx(2)


@pytest.mark.parametrize(("rows", "kernels"), [((512, 512), 2), ((2, 512), 3)])
def test_a_copy_that_keeps_rows_is_a_view(rows: tuple[int, int], kernels: int) -> None:
    copy = _operation("clone", (1,), (2,), rows=rows)

    assert len(_kernels([_operation("_softmax", (0,), (1,)), copy, _operation("_softmax", (2,), (3,))])) == kernels


def test_a_transposed_operand_of_a_product_is_free() -> None:
    copy = _operation("clone", (1,), (2,), rows=(2, 512))

    assert len(_kernels([_operation("add", (0,), (1,)), copy, _product((2, 3), (4,))])) == 2


def test_a_bundle_keeps_its_values_on_the_chip() -> None:
    """On GAUDI2, what makes an operand and what uses the result; the cache of GAUDI3 writes them back."""
    bundle = [_operation("add", (0,), (1,)), _product((1, 2), (3,)), _operation("_softmax", (3,), (4,))]

    assert _accesses(bundle) == pytest.approx(3)
    assert _accesses(bundle, "GAUDI3") == pytest.approx(5)
    assert len({each.bundle for each in _kernels(bundle)}) == 1


def test_a_value_that_is_needed_later_leaves_a_bundle() -> None:
    """It is written, and read once more; its use in the bundle reads it on the chip."""
    bundle = [_product((0, 1), (2,)), _operation("_softmax", (2,), (3,))]
    later = [_operation("mul", (9,), (10,)) for _ in range(13)]

    assert _accesses([*bundle, _operation("norm", (2,), (5,))]) == pytest.approx(2 + 1 + 1)
    apart = _accesses([*bundle, *later, _operation("norm", (2,), (5,))]) - _accesses(later)
    assert apart == pytest.approx(2 + 1 + 1 + 2)


def test_a_kernel_is_in_one_bundle() -> None:
    """What lies between two products belongs to the first, and the second reads its result from the memory."""
    chain = [_product((0, 1), (2,)), _operation("_softmax", (2,), (3,)), _product((3, 4), (5,))]
    first, middle, last = _kernels(chain)

    assert first.bundle == middle.bundle != last.bundle
    assert _accesses(chain) == pytest.approx(2 + 1 + 3)


def test_attention_is_one_bundle_on_gaudi3() -> None:
    chain = [_product((0, 1), (2,)), _operation("_softmax", (2,), (3,)), _product((3, 4), (5,))]

    assert len({each.bundle for each in _kernels(chain, "GAUDI3")}) == 1


def test_three_products_of_one_operand_are_a_bundle() -> None:
    products = [_product((1, 2 + number), (10 + number,)) for number in range(4)]
    bundles = [each.bundle for each in _kernels([_operation("add", (0,), (1,)), *products])]

    assert bundles[0] == bundles[1] == bundles[2] == bundles[3] != bundles[4]


@pytest.mark.parametrize(("generation", "factor"), [("GAUDI2", 128 / 98), ("GAUDI3", 256 / 98)])
def test_rows_cost_whole_lines(generation: str, factor: float) -> None:
    """49 elements of bfloat16 are 98 bytes; a line has 128, and 256 on GAUDI3."""
    operation = _operation("add", (0,), (1,), rows=(98, 98))

    assert _accesses([operation], generation) == pytest.approx(2 * factor)


def test_an_operand_beyond_the_chip_is_fetched_again() -> None:
    """Half of the 48 MiB of GAUDI2 has 24 MiB of one operand, for which all of the other is read."""
    sizes = (32 << 20, 32 << 20)
    product = _product((0, 1), (2,), 32 << 20, 4096)

    assert sum(each.bytes for each in _kernels([product])) == pytest.approx(sum(sizes) + (32 << 20) + (32 << 20))


def test_operands_in_float8_are_half_as_large() -> None:
    """A plan records them in bfloat16; the result is in bfloat16."""
    product = _product((0, 1), (2,), 32 << 20, 4096)
    product.dtype = "float8"

    assert sum(each.bytes for each in _kernels([product])) == pytest.approx((16 << 20) * 2 + (32 << 20))
