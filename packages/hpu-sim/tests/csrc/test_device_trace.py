"""csrc/device_trace.cpp: the device events of a recording."""

from __future__ import annotations

import itertools

import pytest
import torch

from hpu_sim.device.runtime import native

_ids = itertools.count()


@pytest.mark.needs_torch("2.2", "libraries that can be destroyed")
def test_a_recording_keeps_the_names_of_deregistered_operators() -> None:
    """An event owns its name, because the operator may be gone when the recording is stopped."""
    native().start_device_trace()
    names = []
    for _ in range(20):
        library = torch.library.Library(f"hpu_sim_test_trace_{next(_ids)}", "FRAGMENT")
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", lambda x: x + 1, "CPU")
        getattr(torch.ops, library.ns).op(torch.ones(2, device="hpu"))
        names.append(f"{library.ns}::op")
        library._destroy()

    events, num_dropped = native().stop_device_trace()

    assert [name for _, name, *_ in events if name.startswith("hpu_sim_test_trace")] == names
    assert num_dropped == 0
