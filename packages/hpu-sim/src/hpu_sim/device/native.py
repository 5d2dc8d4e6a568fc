"""Type of the C++ extension, which :func:`hpu_sim.device.runtime.native` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch._C._distributed_c10d import Backend, Store


ExecutionMode: TypeAlias = Literal["now", "later", "never"]


class Native(Protocol):
    """Functions of the C++ extension, defined in ``csrc/module.cpp``."""

    def configure(self, devices: int, lazy: bool, memory_limit: int, acquire: Callable[[], None]) -> None:
        """Configure the machine: devices, mode, memory per device in bytes, and the function that acquires a device."""

    def register_operators(self, device_operators: frozenset[str], device_dtypes: Mapping[str, frozenset[str]]) -> None:
        """Register the operators; :mod:`hpu_sim.data.op_support` returns those with a device kernel, and its dtypes."""

    def set_cpu_placement(self, allowed: frozenset[str] | None) -> None:
        """Set which operators without a device kernel run on the CPU; None for all of them."""

    def set_capturing(self, value: bool) -> None:
        """Set whether HPU graphs are being captured, in which no operator can run on the CPU."""

    def cpu_placement_counts(self) -> dict[str, int]:
        """Return the number of calls of each operator without a device kernel."""

    def set_low_precision_supported(self, supported: bool) -> None:
        """Set whether the device has float16 and float8, as all but the first generation have."""

    def set_int64_supported(self, supported: bool) -> None:
        """Set whether the device has int64; without it, collectives drop the high bits."""

    def register_autocast(self, name: str, policy: str) -> bool:
        """Register an operator's autocast policy, "lower", "fp32" or "promote"; return False if torch lacks it."""

    def set_listener(
        self, listener: Callable[..., None] | None, diagnostics: bool = True, operators: bool = False
    ) -> None:
        """Call a function with the fields of each :class:`hpu_sim.device.events.Event`; None removes it.

        Args:
            listener: Function.
            diagnostics: Whether it gets what would be slow or fail on a card.
            operators: Whether it gets every operator, and all operators, arguments and results.
        """

    def drain_autograd_engine(self) -> None:
        """Drain the autograd engine; ``csrc/autograd_threads.h`` gives the reason."""

    def set_acquired(self, acquired: bool) -> None:
        """Set whether this process has acquired a device."""

    def set_strict(  # noqa: PLR0913, PLR0917 - one argument per rule
        self, enabled: bool, alignment: int, small_slab: int, workspace: int, max_slack: int, min_filling: float
    ) -> None:
        """Set whether the device is strict; ``csrc/strict.h``. The rules are :mod:`hpu_sim.device.memory_rules`."""

    def is_strict(self) -> bool:
        """Return whether the device is strict."""

    def set_fused_attention(self, value: bool) -> None:
        """Set whether attention in this thread is that of ``FusedSDPA``, which a strict device fuses."""

    def lenience_counts(self) -> dict[str, int]:
        """Return how often the simulator permitted what strict mode refuses or changes, by a name in the plural."""

    def set_accumulation(self, rules: Mapping[str, tuple[int, int, bool]]) -> None:
        """Set how sums of products round, by dtype; the rules are :data:`hpu_sim.device.accumulation.RULES`."""

    def set_float8_product(self, value: bool) -> None:
        """Set whether products in this thread are of float8, whose numbers are given as float32."""

    def accumulation_distances(self) -> dict[str, tuple[int, float]]:
        """Return calls under such a rule, and the largest relative distance to the CPU, by operator and dtype."""

    def set_locator(self, locate: Callable[[], str]) -> None:
        """Set the function that returns the line of the program which the calling thread runs."""

    def join_pipeline(self) -> None:
        """Raise the late error of an operator, if any; ``csrc/stream.h``."""

    def check_not_lazy(self, op: str, alternative: str) -> None:
        """Raise the bridge's error for a function that it has in eager mode only.

        Args:
            op: Name of the function.
            alternative: Advice on what to call instead in lazy mode, an imperative.

        Raises:
            RuntimeError: In lazy mode.
        """

    def set_execution_mode(self, mode: ExecutionMode) -> None:
        """Set when the kernels of operators run; ``csrc/execution.h``."""

    def wait_for_device(self) -> None:
        """Wait until all streams have run, without Python's lock."""

    def exit_at_interrupt(self) -> None:
        """End the process at SIGINT, without any handler, as the bridge does."""

    def finish_collectives(self) -> None:
        """Wait for all process groups, as the bridge does at exit; ``csrc/hccl.h``."""

    def mark_step(self) -> None:
        """End the current graph and run it."""

    def synchronize(self) -> None:
        """End the current graph and wait for the device."""

    def stats(self) -> dict[str, int]:
        """Return the counters."""

    def reset_stats(self) -> None:
        """Reset the counters to 0, and the memory peak to the bytes in use."""

    def start_device_trace(self) -> None:
        """Start a new trace of the device's work; :meth:`stop_device_trace` ends it."""

    def stop_device_trace(self) -> tuple[list[tuple[str, str, int, int, int, int]], int]:
        """Return the trace's events and the number of dropped events, and end the trace.

        An event has a kind ("kernel", "h2d", "d2h", "d2d", "collective" or "compilation"), a name, start and end in
        nanoseconds since the epoch, the id of the launching thread, and a number of bytes.
        """

    def memory_stats(self) -> dict[str, int]:
        """Return the statistics of ``MemoryStats`` in ``csrc/allocator.h``."""

    def fail_allocation(self, number: int) -> int:
        """Make the allocation of this number from now on fail, once, as beyond the memory limit; for tests.

        Args:
            number: 1 for the next allocation; 0 if none is to fail.

        Returns:
            The number that was left of the call before; 0 if its allocation has failed.
        """

    def reset_peak_memory(self) -> None:
        """Reset the memory peak to the bytes in use."""

    def reset_accumulated_memory(self) -> None:
        """Reset the counters of allocations to 0."""

    def device_type(self) -> int:
        """Return the value of torch's C++ enum ``DeviceType`` for hpu."""

    def current_stream_id(self) -> int:
        """Return the id of the calling thread's current stream."""

    def set_current_stream_id(self, stream_id: int) -> None:
        """Set the calling thread's current stream."""

    def new_stream_id(self) -> int:
        """Return the id of the next stream of the pool."""

    def default_generator(self) -> torch.Generator:
        """Return the device's default generator."""

    def join_hccl_communicator(self, store: Store, rank: int, size: int, limit: float = 120.0) -> Store:
        """Exchange the communicator id through a process group's store; return the store to connect over.

        Args:
            store: Store of the process group.
            rank: Rank.
            size: Number of ranks.
            limit: Seconds in which all ranks must come, if kernels run later.

        Raises:
            RuntimeError: If the store holds the stale id of another process group, or not all ranks have come.
        """

    def make_never_backend(self, rank: int, size: int) -> Backend:
        """Return the backend of a rank of a plan, which exchanges nothing; ``csrc/hccl.h``."""

    def set_never(self, enabled: bool, is_reserved_on_host: Callable[[], bool]) -> None:
        """Set whether no kernel runs; ``csrc/never.h``.

        Args:
            enabled: Whether none runs.
            is_reserved_on_host: Function that returns whether a large CPU tensor that is being made has no memory.
        """

    def assume(self, tensor: torch.Tensor, value: bool) -> None:
        """Have reads of a tensor return a value, where no kernel runs."""

    def take_memory_changes(self) -> list[tuple[int, int]]:
        """Return the number of the storage and the bytes of each allocation and release since the last call."""

    def storage_numbers(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Return the numbers of the storages of tensors; those of the device are above 0."""

    def make_hccl_backend(self, store: Store, rank: int, size: int, connect: Callable[[Store], Backend]) -> Backend:
        """Return an hccl backend that runs its collectives on a gloo backend.

        Args:
            store: Store of the process group, for the communicator's id and barriers.
            rank: Rank in the process group.
            size: Number of ranks.
            connect: Function that returns the gloo backend over a store. It is called here, or at the first collective
                if kernels run later.

        Raises:
            RuntimeError: If the store holds the stale id of another process group.
        """
