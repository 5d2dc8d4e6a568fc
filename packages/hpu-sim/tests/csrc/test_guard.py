"""csrc/guard.cpp: what waits with a mutex of the bridge calls Python without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# Three threads need the mutexes of the bridge with Python's lock, while the main thread waits.
_PROGRAM: Final = """
import gc, sys, threading
import torch
from habana_frameworks.torch import hpu
from hpu_sim.device import events

sys.setswitchinterval(1e-5)
kinds = set()
events.subscribe(events.DIAGNOSTICS, lambda event: kinds.add(event.kind))
x = torch.ones(64, 64, device="hpu")
event = hpu.Event()
event.record()
calls = (event.query, lambda: hpu.Event().record(), lambda: x + 1)
waits = {
    "event": event.synchronize,
    "stream": hpu.default_stream().synchronize,
    "device": hpu.synchronize,
    "item": lambda: x[0, 0].item(),
    "garbage collection": gc.collect,
    "exit": lambda: None,
}
stop = threading.Event()

def repeat(call):
    while not stop.is_set():
        call()

threads = [threading.Thread(target=repeat, args=(call,), daemon=True) for call in calls]
for thread in threads:
    thread.start()
for _ in range(20):
    y = x @ x
    event.record()
    waits[sys.argv[1]]()
if sys.argv[1] != "exit":
    stop.set()
    for thread in threads:
        thread.join()
x.sum().item()
print("host_sync" in kinds)
"""


@pytest.mark.parametrize("wait", ["event", "stream", "device", "item", "garbage collection", "exit"])
def test_a_program_with_a_listener_goes_on(wait: str, output_on: Callable[..., str]) -> None:
    """Queries, records and launches of other threads keep Python's lock while they wait for a mutex of the bridge."""
    assert output_on(_PROGRAM, wait, HPU_SIM_DEVICES="1", HPU_SIM_ASYNC="1", PT_HPU_LAZY_MODE="0") == "True"
