"""A training step whose n-th allocation fails, for every n."""

from __future__ import annotations

import copy
import gc
import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from torch import nn

import hpu_sim
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Before torch 2.4 the only name of it is CUDA's.
_OUT_OF_MEMORY: Final = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)


def _mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)), torch.ones(4, 6)


def _cnn() -> tuple[nn.Module, torch.Tensor]:
    layers = (nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(64, 2)), torch.linspace(-1, 1, 128).view(2, 1, 8, 8)


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, dropout=0, batch_first=True)
    return nn.Sequential(layer, nn.Linear(8, 2)), torch.linspace(-1, 1, 48).view(2, 3, 8)


class _Training:
    """A model on the device, its optimizer, and the state from which every step starts."""

    def __init__(self, make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
        torch.manual_seed(0)
        model, self._batch = make()
        self.model = model.to("hpu")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.step()  # Makes the state of the optimizer.
        self._state = self._host_state()
        self.reset()
        gc.freeze()  # Collecting what imports left takes longer than a step.

    def step(self) -> float:
        loss = self.model(self._batch.to("hpu")).square().mean()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def reset(self) -> None:
        """Release what a step leaves, and return to the first state."""
        # After an error, autograd's thread may still hold tensors when the caller has the error.
        native().fail_allocation(0)
        native().drain_autograd_engine()
        self.optimizer.zero_grad(set_to_none=True)
        model_state, optimizer_state = self._state
        self.model.load_state_dict(model_state)
        self.optimizer.load_state_dict(copy.deepcopy(optimizer_state))
        gc.collect()

    def values(self) -> list[torch.Tensor]:
        """Return CPU copies of every tensor of the model and the optimizer."""
        model_state, optimizer_state = self._host_state()
        moments = [value for state in optimizer_state["state"].values() for value in state.values()]
        return [*model_state.values(), *moments]

    def _host_state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        model_state = {name: value.to("cpu", copy=True) for name, value in self.model.state_dict().items()}
        optimizer_state = self.optimizer.state_dict()
        optimizer_state["state"] = {
            index: {name: value.to("cpu", copy=True) for name, value in state.items()}
            for index, state in optimizer_state["state"].items()
        }
        return model_state, optimizer_state


def _memory() -> tuple[int, int]:
    stats = native().memory_stats()
    return stats["in_use"], stats["num_allocs"] - stats["num_frees"]


@pytest.fixture(params=["lazy", "eager"])
def _mode(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "eager":
        request.getfixturevalue("eager_mode")
    yield
    native().fail_allocation(0)


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("make", [_mlp, _cnn, _transformer])
def test_a_training_survives_the_failure_of_any_allocation(
    make: Callable[[], tuple[nn.Module, torch.Tensor]],
) -> None:
    """Each failure is the out-of-memory error, frees all memory, and does not change the next step."""
    training = _Training(make)
    expected = training.step(), training.values()
    training.reset()
    memory = _memory()

    for number in itertools.count(1):
        native().fail_allocation(number)
        try:
            training.step()
        except _OUT_OF_MEMORY as error:
            message = str(error)
        else:
            assert native().fail_allocation(0) > 0
            break
        assert "HPU out of memory (simulated): tried to allocate" in message
        assert all(value.isfinite().all() for value in training.values())
        training.reset()
        assert _memory() == memory
        actual = training.step(), training.values()
        assert actual[0] == expected[0]
        assert all(map(torch.equal, actual[1], expected[1]))
        training.reset()

    assert number > 10


def test_a_failing_allocation_fails_once() -> None:
    native().fail_allocation(2)
    kept = torch.ones(3, device="hpu")

    with pytest.raises(_OUT_OF_MEMORY, match="tried to allocate 16 bytes"):
        torch.empty(4, device="hpu")

    assert native().fail_allocation(0) == 0
    assert torch.empty(4, device="hpu").numel() == 4
    assert kept.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: torch.cat([x, x], out=out),
        lambda x, out: torch.add(x, 1, out=out),
        lambda x, out: out.resize_(64),
        lambda x, out: x.repeat(2),
        lambda x, out: x.to(torch.bfloat16),
        lambda x, out: x[x > 3],
        lambda x, out: torch.topk(x, 2),
        lambda x, out: torch.linalg.qr(x.view(4, 2)),
        lambda x, out: nn.functional.scaled_dot_product_attention(*[x.view(1, 1, 4, 2)] * 3),
        lambda x, out: torch._foreach_add([x, x], 1),
        lambda x, out: x.cpu().to("hpu"),
    ],
)
@pytest.mark.usefixtures("_mode")
def test_an_operator_survives_the_failure_of_any_allocation(
    call: Callable[[torch.Tensor, torch.Tensor], object],
) -> None:
    """The arguments stay readable, results already made are freed, and the next call is right."""
    x, out = torch.arange(8.0).to("hpu"), torch.empty(0, device="hpu")
    gc.collect()
    memory = _memory()

    for number in itertools.count(1):
        native().fail_allocation(number)
        try:
            call(x, out)
        except _OUT_OF_MEMORY:
            gc.collect()
        else:
            break
        assert _memory() == memory
        assert x.tolist() == list(range(8))
        assert out.tolist() == []

    assert native().fail_allocation(0) > 0


def test_an_output_that_grew_before_another_failed_is_counted() -> None:
    """The other one keeps its size. Both stay readable."""
    x, values = torch.arange(8.0).to("hpu"), torch.empty(0, device="hpu")
    indices = torch.empty(0, dtype=torch.int64, device="hpu")
    in_use = _memory()[0]
    native().fail_allocation(2)

    with pytest.raises(_OUT_OF_MEMORY, match="tried to allocate 64 bytes"):
        torch.sort(x, descending=True, out=(values, indices))

    assert _memory()[0] == in_use + values.numel() * values.element_size()
    assert (values.tolist(), indices.tolist()) == ([7, 6, 5, 4, 3, 2, 1, 0], [])


@pytest.mark.usefixtures("strict")
def test_an_output_that_could_not_grow_on_a_strict_device_keeps_memory_of_its_own() -> None:
    """Of the pool, to which it returns."""
    before = _memory()[0]
    out = torch.zeros(1_000_000, device="hpu")
    native().wait_for_device()
    in_use = _memory()[0]
    native().fail_allocation(1)

    with pytest.raises(_OUT_OF_MEMORY):
        torch.arange(4_000_000, out=out)
    other = torch.ones(1_000_000, device="hpu")

    assert _memory()[0] >= in_use + other.numel() * other.element_size()
    del out, other
    native().wait_for_device()
    assert _memory()[0] == before


def test_other_threads_are_not_disturbed_by_a_failure() -> None:
    """One thread gets the error, every other one its results."""
    from concurrent.futures import ThreadPoolExecutor

    def work(number: int) -> tuple[int, float]:
        failures, total = 0, 0.0
        for _ in range(20):
            try:
                total += float((torch.full((16,), float(number), device="hpu") * 2).sum())
            except _OUT_OF_MEMORY:  # noqa: PERF203 - it is counted
                failures += 1
        return failures, total

    native().fail_allocation(100)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(1, 9)))

    assert sum(failures for failures, _ in results) == 1
    assert all(total == (20 - failures) * 32 * number for number, (failures, total) in enumerate(results, 1))
    assert hpu_sim.stats()["allocated_bytes"] >= 0
