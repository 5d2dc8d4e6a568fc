"""Errors in the middle of operators, and many threads."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Final

import pytest
import torch

import hpu_sim
from hpu_sim.device import runtime
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Before torch 2.4 the only name of it is CUDA's.
_OUT_OF_MEMORY: Final = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
_BUDGETS: Final = 20


@pytest.fixture
def limit_memory() -> Iterator[Callable[[int | None], None]]:
    """Return a function that allows a number of bytes beyond those in use; None for all of the device's."""
    machine = runtime.active_config()

    def limit(budget: int | None) -> None:
        total = machine.memory_bytes if budget is None else hpu_sim.stats()["allocated_bytes"] + budget
        native().configure(machine.devices, machine.lazy, total, runtime.acquire_device)

    yield limit
    limit(None)


def _step() -> float:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Dropout(), torch.nn.GELU())
    model.to("hpu")
    optimizer = torch.optim.AdamW(model.parameters())
    total = model(torch.ones(4, 8).to("hpu")).sort(dim=0).values.cumsum(1).pow(2).sum()
    total.backward()
    optimizer.step()
    out = torch.empty(0, device="hpu")
    torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()], out=out)
    out.resize_(2 * out.numel())
    return float(total.detach())


@pytest.mark.slow
def test_a_step_survives_the_end_of_memory_at_any_allocation(limit_memory: Callable[[int | None], None]) -> None:
    """Each failed step gives all memory back, and the next one is right."""
    expected = _step()
    gc.collect()
    start = hpu_sim.stats()["allocated_bytes"]
    hpu_sim.reset_stats()
    _step()
    gc.collect()
    peak = hpu_sim.stats()["peak_bytes"] - start

    failures = 0
    for budget in range(0, peak, peak // _BUDGETS):
        limit_memory(budget)
        try:
            _step()
        except _OUT_OF_MEMORY:
            failures += 1
        gc.collect()
        assert hpu_sim.stats()["allocated_bytes"] == start
    limit_memory(None)

    assert failures >= _BUDGETS
    assert _step() == expected


def _free_garbage() -> None:
    """Collect until nothing is left: a tensor that C++ holds is freed by the collection after that of its holder."""
    while gc.collect():
        pass


def test_threads_get_the_results_and_the_memory_of_their_own_operators() -> None:
    _free_garbage()
    start = hpu_sim.stats()["allocated_bytes"]
    wrong: list[int] = []

    def work(number: int) -> None:
        x = torch.full((32, 32), float(number)).to("hpu").requires_grad_()
        for _ in range(20):
            y = (x * 2 + torch.native_dropout(x.detach(), 0.5, train=True)[0] * 0).relu().sum()
            (gradient,) = torch.autograd.grad(y, x)
            if y.item() != 2 * number * 32 * 32 or gradient.sum().item() != 2 * 32 * 32:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _free_garbage()

    assert wrong == []
    assert hpu_sim.stats()["allocated_bytes"] == start
