"""csrc/autograd_threads.cpp: a backward pass has the threads and the memory of the program."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.slow
def test_the_number_of_threads_holds_in_backward_passes_after_it_was_changed(output_on: Callable[..., str]) -> None:
    """Autograd's thread for the device goes by `torch.set_num_threads`, also when it has run before."""
    program = """
        import torch

        class Threads(torch.autograd.Function):
            @staticmethod
            def forward(context, value):
                return value * 1

            @staticmethod
            def backward(context, gradient):
                result = gradient * 1
                print(torch.get_num_threads())
                return result

        value = torch.ones(3, device="hpu", requires_grad=True)
        for threads in (2, 1):
            torch.set_num_threads(threads)
            Threads.apply(value).sum().backward()
    """

    assert output_on(program, HPU_SIM_DEVICES="1").split() == ["2", "1"]


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="Requires: glibc's malloc")
def test_a_backward_pass_allocates_from_the_arena_of_the_program(output_on: Callable[..., str]) -> None:
    """Glibc would return the memory of an arena of its own to the system at every step."""
    program = """
        import ctypes, os
        import torch

        value = torch.ones(300, 300, device="hpu", requires_grad=True)
        (value @ value).sum().backward()
        os.dup2(1, 2)
        ctypes.CDLL(None).malloc_stats()
    """

    arenas = [line for line in output_on(program, HPU_SIM_DEVICES="1").splitlines() if line.startswith("Arena")]

    assert arenas == ["Arena 0:"]


def test_hooks_of_a_backward_pass_run_in_a_thread_of_autograd() -> None:
    """Torch's engine keeps backward passes of every accelerator out of the calling thread; programs see which it is."""
    threads = []
    leaf = torch.ones(2, device="hpu", requires_grad=True)
    doubled = leaf * 2
    doubled.register_hook(lambda _: threads.append(threading.get_ident()))

    doubled.sum().backward()

    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
