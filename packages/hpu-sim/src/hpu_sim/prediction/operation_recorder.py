"""Recorder of operators and collectives, for dispatch modes on fake tensors and on real ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from torch.utils._pytree import tree_flatten
from torch.utils.weak import WeakIdKeyDictionary

from hpu_sim.prediction import torch_tools
from hpu_sim.prediction.flops import count_flops, products_of
from hpu_sim.prediction.recording import Collective, Operation, StepRecording, host_read

if TYPE_CHECKING:
    import torch

    from hpu_sim.prediction.recording import Phase

# Position of the tensors that a rank contributes, where it is not the first argument. As in the simulator's counters.
_SECOND_ARGUMENT: Final = frozenset(
    {
        "allgather_",
        "_allgather_base_",
        "allgather_into_tensor_coalesced_",
        "gather_",
        "alltoall_",
        "alltoall_base_",
        "reduce_scatter_",
        "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_",
    }
)
# Names of functional collectives among those of the simulator's counters.
_FUNCTIONAL: Final = {
    "all_reduce": "allreduce",
    "all_gather_into_tensor": "allgather_base",
    "reduce_scatter_tensor": "reduce_scatter_base",
    "all_to_all_single": "alltoall_base",
    "broadcast": "broadcast",
}
# Operators that run nothing on the device.
_WITHOUT_WORK: Final = frozenset(
    {"detach", "alias", "lift_fresh", "_unsafe_view", "empty", "empty_strided", "empty_like", "new_empty"}
)
# Operators that do not read their first tensor: they overwrite it, or take its shape.
_OVERWRITING: Final = frozenset({
    "bernoulli_", "copy_", "exponential_", "fill_", "full_like", "new_full", "new_ones", "new_zeros", "normal_",
    "ones_like", "rand_like", "randn_like", "random_", "uniform_", "zero_", "zeros_like",
})  # fmt: skip
# Operators that read only the selected rows of their first tensor.
_GATHERS: Final = frozenset({"embedding", "index_select", "gather", "index", "_index", "take"})


class OperationRecorder:
    """Recorder of what operators read, write and compute.

    Attributes:
        step: Step that is recorded.
        notes: Limits of the recording.
    """

    def __init__(self) -> None:
        self._formulas = torch_tools.flop_formulas()
        self._storage_ids: Any = WeakIdKeyDictionary()
        self._next_storage = 0
        self._pending: dict[int, int] = {}
        self.step = StepRecording()
        self.notes: set[str] = set()
        # Operators so far of the fused kernel that is being recorded; None outside of one.
        self._parts: int | None = None

    @property
    def phase(self) -> Phase:
        """Part of the step."""
        return "forward"

    @property
    def module(self) -> str:
        """Name by which operators are grouped."""
        return ""

    def on_communication(self, tensor: torch.Tensor) -> None:
        """Take a tensor of a collective."""

    def record_host_copy(self, name: str) -> None:
        """Record a copy to the host."""

    def begin_kernel(self) -> None:
        """Record operators as parts of one kernel from now on."""
        self._parts = 0

    def end_kernel(self) -> None:
        """Record every operator as a kernel again."""
        self._parts = None

    def forget_pending(self) -> None:
        """Forget collectives of an earlier step whose results nothing has read."""
        self._pending.clear()

    def record_sync(self, frame: str = "") -> None:
        """Record that the host waits for the device."""
        self.step.operations.append(host_read(self.phase, self.module, frame))

    def storage_id(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's storage."""
        storage = tensor.untyped_storage()
        found = self._storage_ids.get(storage)
        if found is None:
            found = self._storage_ids[storage] = self._next_storage
            self._next_storage += 1
        return int(found)

    def record_operation(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Record an operator, unless it has no tensor on the device or only makes a view."""
        inputs = torch_tools.tensors_in((args, kwargs))
        outputs = torch_tools.tensors_in(result)
        if not any(each.device.type == "hpu" for each in (*inputs, *outputs)):
            return
        if any(each.device.type != "hpu" for each in outputs) and name in {"_to_copy", "copy_"}:
            self.record_host_copy(name)
            return
        if func.is_view or name in _WITHOUT_WORK:
            return
        reads = tuple((self.storage_id(each), _read_bytes(each)) for each in inputs)
        rows = [_row_bytes(each) for each in (*inputs, *outputs)]
        writes = tuple((self.storage_id(each), _nbytes(each)) for each in outputs)
        if name in _GATHERS and reads and writes:
            reads = ((reads[0][0], writes[0][1]), *reads[1:])
        waits = tuple(sorted({self._pending.pop(each) for each, _ in reads if each in self._pending}))
        if name in _OVERWRITING:
            reads, rows = reads[1:], rows[1:]
        flops = count_flops(self._formulas, func, args, kwargs, result)
        key = hash((str(func), tuple((each.shape, each.dtype) for each in inputs)))
        products = products_of(name, args, result) if flops else ()
        first = next((each for each in (*inputs, *outputs) if each.is_floating_point()), (*inputs, *outputs)[0])
        self.step.operations.append(
            Operation(
                name=f"{func.namespace}.{name}",
                phase=self.phase,
                module=self.module,
                dtype=str(first.dtype).removeprefix("torch."),
                flops=flops,
                matmul=products[0][:4] if products else None,
                reads=reads,
                writes=writes,
                key=key,
                waits_for=waits,
                is_launched=not self._parts,
                products=products,
                rows=tuple(rows),
            )
        )
        if self._parts is not None:
            self._parts += 1

    def record_c10d(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a collective of a process group."""
        tensors = torch_tools.tensors_in((args, kwargs))
        values = named_arguments(func, args, kwargs)
        if "reduce_op" in values and not torch_tools.is_sum(values["reduce_op"]) and "reduce_scatter" in name:
            self.notes.add(
                "A reduce-scatter is not a sum, and HCCL refuses averages: call FSDP2's "
                "`set_force_sum_reduction_for_comms(True)` on every sharded module."
            )
        if name != "barrier" and any(each.device.type == "hpu" for each in tensors):
            payload = args[1] if name in _SECOND_ARGUMENT else args[0]
            self._record_collective(
                name.strip("_").removesuffix("_"),
                tree_flatten(payload)[0],
                tensors,
                torch_tools.group_ranks(values["process_group"]),
                is_async=bool(values.get("async_op", True)),
            )

    def record_functional(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Record a functional collective."""
        values = named_arguments(func, args, kwargs)
        plain = name.removesuffix("_").removesuffix("_coalesced").removesuffix("_out")
        first, *others = values.values()
        payload = torch_tools.tensors_in(first)
        tensors = [*payload, *torch_tools.tensors_in((others, result))]
        ranks = torch_tools.group_ranks(values["group_name"])
        self._record_collective(_FUNCTIONAL.get(plain, plain), payload, tensors, ranks, is_async=True)

    def _record_collective(
        self,
        name: str,
        payload: list[torch.Tensor],
        tensors: list[torch.Tensor],
        ranks: tuple[int, ...],
        *,
        is_async: bool,
    ) -> None:
        size = sum(_nbytes(each) for each in payload)
        total = max(size, *(_nbytes(each) for each in tensors))
        for tensor in tensors:
            self.on_communication(tensor)
            self._pending[self.storage_id(tensor)] = len(self.step.collectives)
        self.step.collectives.append(
            Collective(name, self.phase, size, total, ranks, is_async, len(self.step.operations))
        )


def named_arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator by name, in the order of its schema."""
    names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001 - the only list of them
    return dict(zip(names, args, strict=False)) | kwargs


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel()) * tensor.element_size()


def _read_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's different elements: an expanded dimension is read once."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(sizes) * tensor.element_size() if tensor.numel() else 0


def _row_bytes(tensor: torch.Tensor) -> int:
    """Return the contiguous bytes of a tensor's innermost dimension."""
    is_row = tensor.dim() and tensor.stride(-1) == 1
    return tensor.element_size() * (int(tensor.shape[-1]) if is_row else 1)
