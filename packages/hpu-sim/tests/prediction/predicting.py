"""Operators, and the time of a step of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from hpu_sim.prediction.recording import Operation, Recording
from hpu_sim.prediction.time_model import Clock

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import Mode, StepRecording
    from hpu_sim.prediction.time_model import Timeline


def clock_of(step: StepRecording, generation: str = "GAUDI2", mode: Mode = "lazy") -> Clock:
    """Return the clock of a step on a box of 8."""
    recording = Recording(world_size=8, devices=8, lazy=mode == "lazy", compiled=mode == "compile", steps=[step])
    return Clock(recording, generation)


def predict(step: StepRecording, generation: str = "GAUDI2", mode: Mode = "lazy") -> Timeline:
    """Return the timeline of a step."""
    return clock_of(step, generation, mode).timeline


#: Size of a storage.
SIZE: Final = 1 << 30


def make_operation(
    *,
    name: str = "aten.op",
    flops: int = 0,
    reads: tuple[int, ...] = (),
    writes: tuple[int, ...] = (),
    size: int = SIZE,
    **others: Any,
) -> Operation:
    """Return an operator of the forward pass in bfloat16, whose storages are of one size."""
    read, written = (tuple((each, size) for each in group) for group in (reads, writes))
    others = {"phase": "forward", "module": "", "dtype": "bfloat16", "key": 0, **others}
    return Operation(name, flops=flops, reads=read, writes=written, **others)


def random_operations() -> st.SearchStrategy[list[Operation]]:
    """Return lists of operators and reads of the host in two modules."""
    storages = st.integers(0, 12)

    def make(name: str, flops: int, read: int, written: int, size: int) -> Operation:
        return make_operation(
            name=name, flops=flops if name == "aten.mm" else 0, reads=(read,), writes=(written,), size=size,
            module="ab"[size % 2], host_sync=name == "host_read",
        )  # fmt: skip

    names = st.sampled_from(["aten.mm", "aten.add", "aten.mul", "aten._softmax", "aten.sum", "host_read"])
    flops, sizes = st.integers(1, 1 << 44), st.integers(1, 1 << 32)
    return st.lists(st.builds(make, names, flops, storages, storages, sizes), min_size=1, max_size=30)
