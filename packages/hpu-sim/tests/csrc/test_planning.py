"""Kernels that never run: results without numbers, on memory that is not touched."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import hpu_sim
from hpu_sim.device import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.needs_torch("2.8", "Meta kernels of a plan")


@pytest.fixture(autouse=True)
def _never() -> Iterator[None]:
    native = runtime.native()
    native.set_planning(True, lambda: True)
    yield
    native.set_planning(False, bool)


def _step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("hpu")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        nn.functional.cross_entropy(model(torch.ones(2, 8, device="hpu")), torch.ones(2, 4, device="hpu")).backward()
        optimizer.step()
        optimizer.zero_grad()


def _counters() -> dict[str, int]:
    hpu_sim.reset_stats()
    before = hpu_sim.stats()
    _step()
    runtime.native().mark_step()
    # The recipes of the first step are known to the second, and a peak of an earlier test to both.
    names = [name for name in before if "compil" not in name and "lifetime" not in name]
    return {name: hpu_sim.stats()[name] - before[name] for name in names}


def test_memory_copies_and_graphs_are_those_of_a_run() -> None:
    planned = _counters()
    runtime.native().set_planning(False, bool)
    run = _counters()

    assert planned == run
    assert planned["graphs"] > 0


def test_no_memory_is_touched() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    data = torch.ones(1 << 32, device="hpu")
    result = (data * 2 + data).cpu()

    assert (result.shape, result.device.type) == ((1 << 32,), "cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 19  # KiB


def test_operators_of_the_host_run_on_small_tensors_alone() -> None:
    small, large = torch.full((2,), 3.0), torch.full((1 << 19,), 3.0)

    assert (small * 2).tolist() == [6.0, 6.0]
    assert (large * 2).device.type == "cpu"
    assert not (large * 2).data_ptr() % 16
    assert large[0].item() == 1.0  # Made up.


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.float32, 1.0), (torch.bfloat16, 1.0), (torch.int64, 1), (torch.bool, False)]
)
def test_a_read_returns_a_placeholder(dtype: torch.dtype, value: object) -> None:
    data = torch.ones(4, device="hpu").to(dtype)

    assert data[1].item() == value
    assert data.cpu().tolist() == data.tolist() == [value] * 4


def test_each_dtype_and_size_has_a_shape_of_its_own() -> None:
    calls = [(size, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16) for size in range(1, 65)]

    shapes = [torch.full((size,), 1.0, dtype=dtype, device="hpu").shape for size, dtype in calls]

    assert shapes == [(size,) for size, _ in calls]


def test_what_the_host_wrote_keeps_its_values_until_it_is_changed() -> None:
    data = torch.tensor([3, 5], device="hpu")

    assert data.clone().tolist() == data.view(2, 1).flatten().tolist() == [3, 5]
    data += torch.ones(2, 4, device="hpu").long()[:, 0]
    assert data.tolist() == [1, 1]


def test_indices_and_masks_of_the_host_are_computed() -> None:
    lengths = torch.tensor([3, 0, 5], device="hpu")

    assert (lengths + 1).tolist() == [4, 1, 6]
    assert lengths[lengths > 0].tolist() == [3, 5]
    assert (lengths > 0).nonzero().flatten().tolist() == [0, 2]


def test_indices_and_masks_that_the_device_makes_are_computed() -> None:
    mask = torch.arange(3, device="hpu") < torch.tensor([[1], [2]], device="hpu")

    assert mask.tolist() == [[True, False, False], [True, True, False]]
    assert torch.zeros(3, dtype=torch.int64, device="hpu").add(mask.sum()).tolist() == [3, 3, 3]


def test_lengths_of_ctc_are_those_of_the_host() -> None:
    scores = torch.randn(12, 2, 5, device="hpu", requires_grad=True)
    targets = torch.ones(2, 4, dtype=torch.int64, device="hpu")

    loss = nn.functional.ctc_loss(scores, targets, torch.tensor([12, 9]), torch.tensor([4, 3]))
    loss.backward()

    assert loss.shape == ()
    assert scores.grad is not None
    assert scores.grad.shape == (12, 2, 5)


def test_what_depends_on_unknown_values_has_all_elements() -> None:
    data = torch.ones(2, 3, device="hpu")
    mask = data > 0

    assert data.nonzero().shape == (6, 2)
    assert data.nonzero().stride() == torch.ones(2, 3).nonzero().stride()
    assert data.masked_select(mask[0]).shape == (6,)
    assert data[mask].shape == (6,)
    assert data[mask[:, 0]].shape == (2, 3)
    assert data.unsqueeze(2)[mask, 0].shape == (6,)


def test_unknown_values_are_counted_as_balanced() -> None:
    """By such counts, a mixture of experts divides tokens."""
    chosen = torch.randn(10, 8, device="hpu").argmax(-1).int()

    counts = torch.histc(chosen, bins=4, min=0, max=3)

    assert counts.tolist() == [2, 3, 2, 3]
    assert counts.cumsum(0).tolist() == [2, 5, 7, 10]


@pytest.mark.parametrize(
    ("compare", "value"),
    [(torch.gt, True), (torch.ge, True), (torch.lt, False), (torch.le, False)],
)
def test_an_unknown_number_is_compared_as_one(compare: Callable[..., torch.Tensor], value: object) -> None:
    unknown = torch.randn(4, device="hpu")

    assert compare(unknown, 0.5).all().item() is value
    assert compare(unknown.min(), torch.tensor(0, device="hpu")).item() is value


def test_one_element_is_computed() -> None:
    flag = torch.tensor(3, device="hpu")

    assert (flag * 2 + 1).item() == 7
    assert bool(flag == 3)
    flag.fill_(9)
    assert flag.item() == 9


def test_an_expanded_element_is_not_computed() -> None:
    assert (torch.tensor(3.0, device="hpu").expand(1 << 40) * 2).shape == (1 << 40,)


def test_flags_stay_false_in_another_dtype() -> None:
    """DeepSpeed adds the flags of infinite gradients up as numbers."""
    found = torch.ones(4, device="hpu").isnan()

    assert found.float().max().item() == 0
    assert found.any().byte().item() == 0


def test_an_assumed_value_is_that_of_what_is_derived() -> None:
    found = torch.ones(4, device="hpu") == 1
    runtime.native().assume(found, True)

    assert bool(found.all())
    assert not bool((~found).any())
    assert bool(found.clone()[1])


def test_deterministic_algorithms_have_no_alerts_of_cuda() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.histc(torch.ones(4, device="hpu"), bins=3).shape == (3,)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_arguments_are_checked() -> None:
    data = torch.ones(4, device="hpu")

    with pytest.raises(RuntimeError, match=r"broadcast a dimension of length 3"):
        data + torch.ones(3, device="hpu")
    with pytest.raises(
        RuntimeError, match=r"at least two devices, hpu:0 and cpu! .*argument other in method aten::add"
    ):
        data + torch.ones(4)
    with pytest.raises(NotImplementedError, match=r"aten::_unique2 cannot be planned: dynamic"):
        data.unique()


def test_views_and_results_share_storages_as_in_a_run() -> None:
    data = torch.ones(4, 6, device="hpu")
    before = hpu_sim.stats()["allocated_bytes"]

    assert data[1:, ::2].relu_().untyped_storage().data_ptr() == data.untyped_storage().data_ptr()
    assert data.add_(1) is data
    assert hpu_sim.stats()["allocated_bytes"] == before
    out = torch.empty(0, device="hpu")
    assert torch.mul(data, 2, out=out) is out
    assert out.shape == (4, 6)
    assert hpu_sim.stats()["allocated_bytes"] == before + 4 * 6 * 4


def test_the_recorder_gets_operators_and_memory_in_order() -> None:
    native = runtime.native()
    events: list[tuple[str, str]] = []
    changes: list[int] = []

    def record(kind: str, name: str, *_: object) -> None:
        events.append((kind, name))
        changes.extend(size for _, size in native.take_memory_changes())

    native.set_listener(record, diagnostics=False, operators=True)
    try:
        data = torch.ones(8, device="hpu")
        data = data * 2
        data.sum().item()
    finally:
        native.set_listener(None)

    assert events == [
        ("operator", "aten::fill_"),
        ("operator", "aten::mul"),
        ("operator", "aten::sum"),
        ("host_sync", "aten::_local_scalar_dense"),
    ]
    assert changes == [32, 32, -32, 4]


def test_an_error_of_the_recorder_reaches_the_program_from_a_backward_pass() -> None:
    native = runtime.native()

    def record(kind: str, name: str, *_: object) -> None:
        if name == "aten::threshold_backward":
            raise LookupError(kind)

    loss = torch.ones(4, device="hpu", requires_grad=True).relu().sum()
    native.set_listener(record, diagnostics=False, operators=True)
    try:
        with pytest.raises(LookupError, match="operator"):
            loss.backward()
    finally:
        native.set_listener(None)
