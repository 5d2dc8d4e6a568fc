"""csrc/fork_safety.cpp: no child has a mutex for ever locked."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from habana_frameworks.torch import hpu

from hpu_sim.device.runtime import native

_FORKS = 20


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_a_child_can_free_pinned_memory_whatever_other_threads_do() -> None:
    """As the workers of a data loader do. A child that waits for ever is killed by an alarm."""
    stop = threading.Event()

    def pin_and_free() -> None:
        while not stop.is_set():
            torch.ones(1).pin_memory()

    threads = [threading.Thread(target=pin_and_free) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        codes = []
        for _ in range(_FORKS):
            pinned = torch.ones(1).pin_memory()
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                del pinned
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert codes == [0] * _FORKS


@pytest.mark.usefixtures("pipelined")
def test_a_child_waits_for_nothing_that_its_parent_has_queued() -> None:
    """As on the bridge, whose joins return at once in a child; another thread waits for an event while it forks."""
    matrix, event = torch.ones(500, 500, device="hpu"), hpu.Event()
    for _ in range(20):
        matrix @ matrix
    event.record()
    waiting = threading.Thread(target=event.synchronize)
    waiting.start()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        hpu.current_stream().query()
        event.query()
        native().synchronize()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    waiting.join()

    assert code == 0
