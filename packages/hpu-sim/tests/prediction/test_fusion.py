"""Kernels of graphs, and what of their values reaches the card's memory."""

from __future__ import annotations

from typing import Any

import pytest

from hpu_sim.prediction.fusion import Kernel, inner_storages, segments
from hpu_sim.prediction.recording import Collective, Operation, StepRecording

_SIZE = 1 << 30


def _operation(
    name: str, reads: tuple[int, ...], writes: tuple[int, ...], size: int = _SIZE, **kwargs: Any
) -> Operation:
    read, written = (tuple((each, size) for each in group) for group in (reads, writes))
    return Operation(f"aten.{name}", "forward", "", "bfloat16", 0, read, written, 0, **kwargs)


def _kernels(operations: list[Operation], **kwargs: Any) -> list[Kernel]:
    found = segments(StepRecording(operations, **kwargs), "lazy")
    return [kernel for segment in found for kernel in segment.kernels]


def _accesses(operations: list[Operation], **kwargs: Any) -> float:
    """Return how many times 1 GiB moves between the chip and the memory."""
    return sum(kernel.bytes for kernel in _kernels(operations, **kwargs)) / _SIZE


def test_a_chain_of_elementwise_operators_reads_and_writes_once() -> None:
    chain = [_operation("add", (number,), (number + 1,)) for number in range(4)]

    assert len(_kernels(chain)) == 1
    assert _accesses(chain) == pytest.approx(2)


def test_in_eager_mode_every_operator_reads_and_writes() -> None:
    step = StepRecording([_operation("add", (number,), (number + 1,)) for number in range(4)])
    (segment,) = segments(step, "eager")

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


def test_a_transposed_operand_of_products_is_free() -> None:
    product = _operation("mm", (2, 3), (4,))
    product.flops = 8
    copy = _operation("clone", (1,), (2,))

    assert _accesses([copy, product]) == pytest.approx(3)
    assert _accesses([copy, product, _operation("softmax", (2,), (5,))]) == pytest.approx(7)


def test_storages_of_a_chain_are_inner_but_its_result() -> None:
    """One that is written twice, as by an operator in place, is inner if both values are.

    In eager mode, those of a fused kernel of the bridge are.
    """
    chain = [_operation("sqrt", (0,), (1,)), _operation("div", (1,), (2,)), _operation("add_", (2,), (2,)),
             _operation("addcdiv_", (3, 2), (3,)), _operation("softmax", (3,), (4,))]  # fmt: skip
    step = StepRecording(chain, graph_ends=[5])

    assert inner_storages(step, "lazy") == {1: 5, 2: 5}
    assert inner_storages(StepRecording(chain, graph_ends=[2]), "lazy") == {1: 2}
    for each in chain:
        each.phase = "optimizer"
    assert inner_storages(step, "compile") == {}
    for each in chain[1:4]:
        each.is_launched = False
    assert inner_storages(step, "eager") == {1: 5, 2: 5}
