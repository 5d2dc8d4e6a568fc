"""csrc/autograd_threads.cpp: backward passes run on the threads that the program asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_number_of_threads_holds_in_backward_passes_after_it_was_changed(output_of: Callable[..., str]) -> None:
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

    assert output_of(program, HPU_SIM_DEVICES="1", HPU_SIM_ASYNC="1").split() == ["2", "1"]


@pytest.mark.parametrize(("is_async", "is_same_thread"), [("0", "True"), ("1", "False")])
def test_a_backward_pass_runs_on_the_calling_thread_unless_asynchronous(
    output_of: Callable[..., str], is_async: str, is_same_thread: str
) -> None:
    program = """
        import threading
        import torch

        value = torch.ones(3, device="hpu", requires_grad=True)
        value.register_hook(lambda gradient: print(threading.get_ident() == threading.main_thread().ident))
        value.sum().backward()
    """

    assert output_of(program, HPU_SIM_DEVICES="1", HPU_SIM_ASYNC=is_async).split() == [is_same_thread]
