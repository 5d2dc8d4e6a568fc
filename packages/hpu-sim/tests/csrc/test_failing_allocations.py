"""Training steps and operators on a device that is too small for them, by any amount."""

from __future__ import annotations

import copy
import gc
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from torch import nn

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable

    LeaveMemory = Callable[[int | None], None]

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


def _needed(call: Callable[[], object]) -> int:
    """Return the memory that a call takes at its peak."""
    native().reset_peak_memory()
    before = _memory()[0]
    call()
    return native().memory_stats()["max_in_use"] - before


@pytest.mark.parametrize("is_eager", [False, True], ids=["lazy", "eager"])
@pytest.mark.parametrize("make", [_mlp, _cnn, _transformer])
def test_a_training_survives_a_shortage_at_any_point(
    make: Callable[[], tuple[nn.Module, torch.Tensor]],
    is_eager: bool,
    leave_memory: LeaveMemory,
    request: pytest.FixtureRequest,
) -> None:
    """Each failure is the out-of-memory error, frees all memory, and does not change the next step."""
    if is_eager:
        request.getfixturevalue("eager_mode")
    training = _Training(make)
    expected = training.step(), training.values()
    training.reset()
    needed = _needed(training.step)
    training.reset()
    memory = _memory()

    for left in range(0, needed, needed // 20):
        leave_memory(left)
        with pytest.raises(_OUT_OF_MEMORY, match=r"HPU out of memory \(simulated\): tried to allocate"):
            training.step()
        leave_memory(None)
        assert all(value.isfinite().all() for value in training.values())
        training.reset()
        assert _memory() == memory
        assert training.step() == expected[0]
        assert all(map(torch.equal, training.values(), expected[1]))
        training.reset()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: torch.cat([x, x], out=out),
        lambda x, out: out.resize_(64),
        lambda x, out: x.to(torch.bfloat16),
        lambda x, out: x[x > 3],
        lambda x, out: torch.topk(x, 2),
        lambda x, out: torch.linalg.qr(x.view(4, 2)),
        lambda x, out: nn.functional.scaled_dot_product_attention(*[x.view(1, 1, 4, 2)] * 3),
        lambda x, out: torch._foreach_add([x, x], 1),
    ],
)
def test_an_operator_survives_a_shortage_at_any_point(
    call: Callable[[torch.Tensor, torch.Tensor], object], leave_memory: LeaveMemory
) -> None:
    """The arguments stay readable, and results already made are freed."""
    x, out = torch.arange(8.0).to("hpu"), torch.empty(0, device="hpu")
    needed = _needed(lambda: call(x, torch.empty(0, device="hpu")))
    gc.collect()
    gc.freeze()  # As for a training, also of what other tests left.
    memory = _memory()

    for left in range(0, needed, 4):
        leave_memory(left)
        with pytest.raises(_OUT_OF_MEMORY):
            call(x, out)
        gc.collect()
        assert _memory() == memory
        assert (x.tolist(), out.tolist()) == (list(range(8)), [])


def test_an_output_that_grew_before_another_failed_is_counted(leave_memory: LeaveMemory) -> None:
    """The other one keeps its size. Both stay readable."""
    x, values = torch.arange(8.0).to("hpu"), torch.empty(0, device="hpu")
    indices = torch.empty(0, dtype=torch.int64, device="hpu")
    in_use = _memory()[0]
    leave_memory(40)

    with pytest.raises(_OUT_OF_MEMORY, match="tried to allocate 64 bytes"):
        torch.sort(x, descending=True, out=(values, indices))

    assert _memory()[0] == in_use + values.numel() * values.element_size()
    assert (values.tolist(), indices.tolist()) == ([7, 6, 5, 4, 3, 2, 1, 0], [])
