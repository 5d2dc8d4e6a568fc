"""Type of the C++ extension, which :func:`hpu_sim.runtime.native` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch._C._distributed_c10d import Backend


class Native(Protocol):
    """Functions of the C++ extension; ``csrc/module.cpp`` defines them."""

    def configure(self, devices: int, lazy: bool, memory_limit: int, acquire: Callable[[], None]) -> None:
        """Set up the machine: cards, mode, memory of a card in bytes, and what takes a card before the first use."""

    def set_low_precision_supported(self, supported: bool) -> None:
        """Say whether the card has float16 and float8, as all but the first generation have."""

    def register_autocast(self, name: str, policy: str) -> bool:
        """Let an operator cast under autocast by "lower", "fp32" or "promote"; False where torch has none so named."""

    def set_listener(self, listener: Callable[[str, str, str, int], None] | None) -> None:
        """Call ``listener(kind, op, detail, bytes)`` for each event of ``csrc/observer.h``; None stops it."""

    def finish_backward_passes(self) -> None:
        """Wait until the autograd thread holds nothing of an earlier backward pass; ``csrc/backward.h`` says why."""

    def set_acquired(self, acquired: bool) -> None:
        """Say whether this process has a card."""

    def mark_step(self) -> None:
        """Close the graph that is being recorded."""

    def synchronize(self) -> None:
        """Wait for the device, which closes the graph too."""

    def stats(self) -> dict[str, int]:
        """Return every counter."""

    def reset_stats(self) -> None:
        """Set every counter to 0, and the peak of memory to what is in use."""

    def start_device_trace(self) -> None:
        """Record when the device works, until :meth:`take_device_trace`; what was recorded before is forgotten."""

    def take_device_trace(self) -> tuple[list[tuple[str, str, int, int, int, int]], int]:
        """End the recording and return its intervals, and how many there were beyond those.

        An interval is its kind ("kernel", "h2d", "d2h", "d2d", "collective" or "compilation"), a name, its begin and
        its end in nanoseconds since the epoch, the number of the thread that launched it, and bytes.
        """

    def memory_stats(self) -> dict[str, int]:
        """Return limit, in_use, max_in_use and max_alloc_size in bytes, num_allocs and num_frees."""

    def reset_peak_memory(self) -> None:
        """Set the peak of memory to what is in use."""

    def reset_accumulated_memory(self) -> None:
        """Set the counts of allocations to 0."""

    def device_type(self) -> int:
        """Return the number that torch's C++ gives the hpu device type."""

    def current_stream_id(self) -> int:
        """Return the number of the calling thread's current stream."""

    def set_current_stream_id(self, stream_id: int) -> None:
        """Make a stream the current one of the calling thread."""

    def new_stream_id(self) -> int:
        """Return the number of the next stream of the pool."""

    def default_generator(self) -> torch.Generator:
        """Return the device's generator of random numbers."""

    def make_hccl_backend(self, gloo: Backend) -> Backend:
        """Return an hccl backend that a gloo backend carries."""
