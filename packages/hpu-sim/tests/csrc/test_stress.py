"""Many threads."""

from __future__ import annotations

import gc
import threading

import torch

import hpu_sim
from hpu_sim.device.runtime import native


def _free_garbage() -> None:
    """Collect until nothing is left: a tensor that C++ holds is freed by the collection after that of its holder."""
    # Autograd's thread may still hold what it has computed when the caller has it.
    native().drain_autograd_engine()
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
