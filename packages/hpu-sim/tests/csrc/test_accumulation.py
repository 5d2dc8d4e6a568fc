"""csrc/accumulation.cpp: HPU_SIM_NUMERICS=1, by sums whose rounding is known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed

from hpu_sim.device.accumulation import RULES
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Iterator

# Half of the last bit of 1 in float32: added to it alone, nothing changes.
_HALF = 2.0**-24
_UP, _DOWN = 1 + 2.0**-23, 1 - 2.0**-24


@pytest.fixture(autouse=True)
def _cpu_sums_afterwards() -> Iterator[None]:
    yield
    native().wait_for_device()
    native().set_accumulation({})


def _dot(generation: str, dtype: torch.dtype, *products: float) -> float:
    """Return a sum of products in float32, as a column of a product with ones."""
    native().set_accumulation(RULES[generation])
    row = torch.tensor([products], dtype=dtype, device="hpu")
    ones = torch.ones(len(products), 2, dtype=dtype, device="hpu")
    if dtype == torch.float32:
        return (row @ ones)[0, 1].item()
    # The sum keeps its bits in a result of 16 bits: what is left of it after its largest part.
    rest = torch.baddbmm(torch.tensor(-1.0, dtype=dtype, device="hpu"), row[None], ones[None])
    return 1 + rest[0, 0, 1].item()


@pytest.mark.parametrize(
    ("generation", "dtype", "products", "total"),
    [
        # The tree is as wide as the halves that reach the sum together.
        ("GAUDI2", torch.bfloat16, [1.0, *[0.0] * 7, *[_HALF] * 2, *[0.0] * 6], _UP),
        ("GAUDI2", torch.bfloat16, [1.0, *[0.0] * 7, _HALF, *[0.0] * 7, _HALF, *[0.0] * 7], 1),
        ("GAUDI2", torch.float16, [1.0, *[0.0] * 7, *[_HALF] * 2, *[0.0] * 6], _UP),
        ("GAUDI2", torch.float32, [1.0, 0.0, _HALF, _HALF], _UP),
        ("GAUDI2", torch.float32, [1.0, _HALF, _HALF, 0.0], 1),
        # Four sums take turns, and are added pairwise.
        ("GAUDI", torch.bfloat16, [1.0, 0.0, _HALF, _HALF], _UP),
        ("GAUDI", torch.bfloat16, [1.0, _HALF, _HALF, 0.0], 1),
        ("GAUDI", torch.float32, [1.0, 0.0, _HALF, 0.0, 0.0, 0.0, _HALF, 0.0], _UP),
        # Toward zero: more than a half changes nothing, and the least that is negative does.
        ("GAUDI3", torch.bfloat16, [1.0, *[0.0] * 7, _HALF, _HALF / 2, *[0.0] * 6], 1),
        ("GAUDI3", torch.bfloat16, [1.0, *[0.0] * 7, -(2.0**-40), *[0.0] * 7], _DOWN),
        ("GAUDI3", torch.bfloat16, [1.0, *[0.0] * 7, *[_HALF] * 2, *[0.0] * 6], _UP),
        ("GAUDI3", torch.float32, [1.0, _HALF, _HALF], 1),
        ("GAUDI3", torch.float32, [1.0, -(2.0**-40)], _DOWN),
    ],
)
def test_a_sum_rounds_as_on_a_card(generation: str, dtype: torch.dtype, products: list[float], total: float) -> None:
    assert _dot(generation, dtype, *products) == total


@pytest.mark.needs_torch("2.1", "float8")
@pytest.mark.parametrize(("generation", "tree"), [("GAUDI2", 16), ("GAUDI3", 8)])
def test_float8_has_the_widest_tree(generation: str, tree: int) -> None:
    native().set_accumulation(RULES[generation])
    row = torch.zeros(1, 4 * tree)
    row[0, [0, tree, 2 * tree - 1]] = torch.tensor([1, _HALF**0.5, _HALF**0.5])
    narrow = row.to(torch.float8_e5m2).to("hpu")

    total = torch.ops.hpu.fp8_gemm_v2(narrow, False, narrow, True, None, torch.float32)

    assert total.item() == _UP


def test_an_addend_is_added_to_the_sum() -> None:
    """Also to one that the operator overwrites."""
    native().set_accumulation(RULES["GAUDI2"])
    left, right, addend = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(3, 4), torch.ones(2, 4)
    expected = 2 * addend + 3 * (left @ right)
    operands = left.to("hpu"), right.to("hpu")

    assert torch.equal(torch.addmm(addend.to("hpu"), *operands, beta=2, alpha=3).cpu(), expected)
    assert torch.equal(addend.to("hpu").addmm_(*operands, beta=2, alpha=3).cpu(), expected)
    assert torch.equal(torch.mv(*(each.to("hpu") for each in (right.mT, right[:, 0]))).cpu(), right.mT @ right[:, 0])
    assert torch.dot(*(each.to("hpu") for each in (left[1], left[0]))).item() == 14


def test_the_distance_to_the_cpu_is_kept() -> None:
    calls, _ = native().accumulation_distances().get("mm of float32", (0, 0.0))

    assert _dot("GAUDI3", torch.float32, 1.0, -(2.0**-40)) == _DOWN

    after, distance = native().accumulation_distances()["mm of float32"]
    assert after == calls + 1
    assert distance >= 2.0**-24


@pytest.mark.usefixtures("pipelined")
def test_a_queued_product_has_the_rule_of_its_call() -> None:
    assert _dot("GAUDI3", torch.float32, 1.0, -(2.0**-40)) == _DOWN


def test_a_reduction_of_three_ranks_rounds_once() -> None:
    """Of 256, 1 and 1 in bfloat16, where 257 rounds to 256."""
    native().set_accumulation(RULES["GAUDI2"])
    dist: Any = distributed  # Its types lack what is used here.
    store = dist.HashStore()

    def reduce(rank: int) -> list[float]:
        def connect(joined: Any) -> Any:
            return dist.ProcessGroupGloo(joined, rank, 3)

        values = torch.ones(3, dtype=torch.bfloat16)
        values[rank] = 256
        tensor = values.to("hpu")
        backend: Any = native().make_hccl_backend(store, rank, 3, connect)
        backend.allreduce([tensor]).wait()
        return list(tensor.tolist())

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(reduce, range(3))) == [[258.0] * 3] * 3
