"""Fake device: tensors on ``hpu`` with shapes and without data, and the recorder of what a program does with them.

Operators on CPU tensors run as usual, so a program loads and prepares its data for real. An operator with a tensor on
``hpu`` runs under torch's FakeTensorMode. Large weights are fake from their creation, on any device.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpu_sim.common import frames
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.memory_tracker import memory_tracker_class
from hpu_sim.prediction import torch_tools
from hpu_sim.prediction.operation_recorder import OperationRecorder, named_arguments
from hpu_sim.prediction.recording import HostRead, MemorySample, StepRecording

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from hpu_sim.prediction.recording import Phase

#: Weights of at least this size are fake from their creation.
LARGE_BYTES: Final = 1 << 20
# A loop that waits for a value to change would never end, because the value is made up.
_MAX_READS_OF_A_LINE: Final = 10_000
# Operators between two reports of progress.
_OPERATORS_PER_REPORT: Final = 1000
# Operators that keep what is known of a value, and those that negate it.
_COPIES: Final = frozenset({"all", "any", "_to_copy", "clone", "view", "squeeze"})
_NEGATIONS: Final = frozenset({"logical_not", "bitwise_not"})
_FACTORIES: Final = frozenset({"empty", "empty_strided", "zeros", "ones", "full", "rand", "randn", "normal"})


class FakeDevice(TorchDispatchMode, OperationRecorder):
    """Mode that gives ``hpu`` tensors no data and records operators, collectives and memory."""

    def __init__(self, on_root_module: Callable[[torch.nn.Module], None], on_progress: Callable[[], None]) -> None:
        TorchDispatchMode.__init__(self)
        OperationRecorder.__init__(self)
        module = torch_tools.fake_tensor_module()
        self._fake_class = module.FakeTensor
        self.fake_mode = module.FakeTensorMode(allow_non_fake_inputs=True)
        self._unsupported = (module.UnsupportedOperatorException, module.UnsupportedFakeTensorException)
        self._dynamic = (module.DynamicOutputShapeException, module.DataDependentOutputException)
        # The boxed object does not keep the Python part of a work alive, without which `wait` never returns.
        self._works: list[Any] = []
        self._last_work: Any = None
        self.is_recording = False
        self.host_reads: dict[tuple[str, str], HostRead] = {}
        self.error: PlanError | None = None
        self.on_root_module = on_root_module
        self._on_progress = on_progress
        self._calls = 0
        self._values: dict[int, Any] = {}
        self.is_float8 = False
        self.lines: dict[str, str] = {}
        self._unsaved_peak: Phase | None = None
        self.tracker = memory_tracker_class()(self)

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call] # torch's
        self.tracker.__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self.tracker.__exit__(*args)
        super().__exit__(*args)  # type: ignore[no-untyped-call] # torch's

    def begin(self, step: StepRecording) -> None:
        """Record into a step from now on."""
        self.end()
        self.step = step
        self.forget_pending()
        self.is_recording = True
        self.after_change(tuple(self.tracker.bytes))

    def end(self) -> None:
        """Stop recording the step."""
        self._save_peak()
        self.is_recording = False

    def remove_data(self, parameter: torch.nn.Parameter) -> None:
        """Make a parameter fake on its device; it stays the same object."""
        with self.fake_mode, torch.no_grad():
            fake = torch.empty_strided(
                parameter.shape, parameter.stride(), dtype=parameter.dtype, device=parameter.device
            )
        torch.utils.swap_tensors(parameter, torch.nn.Parameter(fake, requires_grad=parameter.requires_grad))

    @property
    def phase(self) -> Phase:
        """Part of the step."""
        if not self.is_recording:
            return "setup"
        if self.tracker.is_optimizing:
            return "optimizer"
        return "backward" if torch_tools.is_backward() else "forward"

    def __torch_dispatch__(  # noqa: PLR0911 - one return per kind of operator
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self._report_progress()
        if self._last_work is not None:
            # DDP's reducer asks for the future at once. Later, a work must not keep its tensors.
            self._last_work.tensors = self._last_work = None
        if any(each is not torch.Tensor and each.__name__ == "DTensor" for each in types):
            return NotImplemented  # torch turns it into operators on local tensors, which come here again.
        if func.namespace == "prim":
            return func(*args, **kwargs)  # The device or layout of a tensor.
        if func.namespace == "c10d":
            return self._run_collective(func, args, kwargs)
        if not self._is_fake(func, types, args, kwargs):
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]  # noqa: SLF001 - the only name without the overload
        if name in {"_local_scalar_dense", "equal", "is_nonzero"}:
            return self._read(name, args)
        if name in {"wait_tensor", "_wrap_tensor_autograd"}:
            # The collective stays pending: the operator that reads the tensor waits for it.
            self.storage_id(args[0])
            return args[0]
        result = args[0] if self._accumulates_in_place(func, args) else self._call(func, args, kwargs)
        self._keep_value(name, args, result)
        if func.namespace == "_c10d_functional":
            self.record_functional(func, name, args, kwargs, result)
        elif self.is_recording:
            self._record(func, name, args, kwargs, result)
        return result

    def _record(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Record an operator, and the line of the program that runs its module."""
        count = len(self.step.operations)
        self.record_operation(func, name, args, kwargs, result)
        if len(self.step.operations) == count:
            return
        operation = self.step.operations[-1]
        if self.is_float8 and operation.matmul is not None:
            operation.dtype = "float8"
        if operation.phase == "forward" and operation.module not in self.lines:
            self.lines[operation.module] = frames.program_line()

    def assume(self, tensor: torch.Tensor, value: Any) -> None:
        """Have reads of a tensor return a value."""
        self._values[self.storage_id(tensor)] = value

    def _keep_value(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Assume values where any other one would keep a program from training."""
        if name == "_amp_foreach_non_finite_check_and_unscale_":
            self.assume(args[1], 0.0)  # No gradient is infinite, so that a GradScaler steps its optimizer.
        elif self._values and name in _COPIES | _NEGATIONS and isinstance(args[0], torch.Tensor):
            value = self._values.get(self.storage_id(args[0]))
            if value is not None and isinstance(result, torch.Tensor):
                self.assume(result, not value if name in _NEGATIONS else value)

    def _report_progress(self) -> None:
        self._calls += 1
        if self._calls % _OPERATORS_PER_REPORT == 0:
            self._on_progress()

    def _is_fake(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if any(issubclass(each, self._fake_class) for each in types):
            return True
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "hpu":
            return True
        return func.__name__.partition(".")[0] in _FACTORIES and _is_large(args) and _is_in_constructor()

    def _accumulates_in_place(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Return whether autograd adds a gradient to one that nothing else refers to.

        The engine does so in place for every tensor but subclasses, such as fake tensors.
        """
        return (
            func is torch.ops.aten.add.Tensor
            and torch_tools.is_backward()
            and all(isinstance(each, self._fake_class) for each in args)
            and (args[0].shape, args[0].dtype) == (args[1].shape, args[1].dtype)
            and torch_tools.is_last_reference(args[0])
            and torch_tools.is_called_by_autograd_engine()
        )

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.__name__ == "_to_copy.default" and type(args[0]) is torch.Tensor and args[0].numel() > 1:
            # torch would first copy a tensor with data for real, and keeps the values of single numbers alone.
            args = (self.fake_mode.from_tensor(args[0]), *args[1:])
        try:
            with self.fake_mode:
                return func(*args, **kwargs)
        except self._dynamic as error:
            raise self._fail(
                f"the shape of the result of {func} depends on data, which a plan does not have (and on a card it is a "
                "host sync and a new graph): use a mask, torch.where or a fixed number of elements"
            ) from error
        except self._unsupported as error:
            raise self._fail(
                f"the operator {func} has no shape function: register one with torch.library.register_fake"
            ) from error

    def _fail(self, problem: str) -> PlanError:
        self.error = PlanError(problem, frames.program_line())
        return self.error

    def _read(self, name: str, args: tuple[Any, ...]) -> Any:
        tensor = args[0]
        value = True if name == "equal" else self._values.get(self.storage_id(tensor), _placeholder(tensor.dtype))
        if tensor.device.type == "hpu" and self.is_recording:
            self.record_host_read(name, repr(value))
        return value

    def record_host_read(self, operator: str, assumed: str) -> None:
        """Record that the program reads a tensor's data on the host, and the assumed value, empty for a copy.

        Raises:
            PlanError: If the same line has read too often.
        """
        frame = frames.program_frame()
        location = frames.program_line()
        source = "" if frame is None else frames.describe_frame(frame, frame.f_lineno).source
        key = (location, operator)
        count = self.host_reads[key].count + 1 if key in self.host_reads else 1
        self.host_reads[key] = HostRead(location, source, operator, assumed, count)
        if count > _MAX_READS_OF_A_LINE:
            raise self._fail(
                f"the line reads a value more than {_MAX_READS_OF_A_LINE} times, and a plan has no values: it assumed "
                f"{assumed} each time. Do not plan a loop whose end depends on a value"
            )
        if self.is_recording:
            self.record_sync(frames.name_in_trace(frame))

    def record_host_copy(self, name: str) -> None:
        """Record a copy to the host."""
        self.record_host_read(name, "")

    def on_communication(self, tensor: torch.Tensor) -> None:
        """Count the memory of a collective's tensor as communication."""
        self.tracker.mark_communication(tensor)

    @property
    def module(self) -> str:
        """Qualified name of the innermost module that runs."""
        return str(self.tracker.module)

    def before_change(self, *, shrinks: bool) -> None:
        """Save the memory by module of a peak before it is left."""
        if self._unsaved_peak is not None and (shrinks or self.phase != self._unsaved_peak):
            self._save_peak()

    def after_change(self, by_category: tuple[int, ...]) -> None:
        """Record the memory of the device."""
        phase = self.phase
        self.step.samples.append(MemorySample(len(self.step.operations), phase, by_category))
        total = sum(by_category)
        if total > self.step.peaks.get(phase, (0, {}))[0]:
            self.step.peaks[phase] = (total, {})
            self._unsaved_peak = phase

    def _save_peak(self) -> None:
        if self._unsaved_peak is not None:
            total, _ = self.step.peaks[self._unsaved_peak]
            self.step.peaks[self._unsaved_peak] = (total, dict(self.tracker.by_module))
            self._unsaved_peak = None

    def _run_collective(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not func._schema.returns:  # noqa: SLF001 - as above
            return None  # A monitored barrier: nobody is late.
        name = func._schema.name.partition("::")[2]  # noqa: SLF001 - as above
        tensors = torch_tools.tensors_in((args, kwargs))
        if not any(isinstance(each, self._fake_class) for each in tensors):
            group = named_arguments(func, args, kwargs)["process_group"]
            _run_for_equal_ranks(name, args, len(torch_tools.group_ranks(group)))
        self.record_c10d(func, name, args, kwargs)
        work = torch_tools.finished_work_class()(args[0])
        self._works.append(work)
        self._last_work = work
        return work.boxed() if len(func._schema.returns) == 1 else (args[0], work.boxed())  # noqa: SLF001 - as above


def _run_for_equal_ranks(name: str, args: tuple[Any, ...], world_size: int) -> None:
    """Run a collective with values, as if every rank contributed what this one does.

    ``torch.tensor(1, device="hpu")`` has a value, because no mode sees its creation. Frameworks compare such numbers
    over ranks, for example the length of the data.
    """
    if name == "allreduce_":
        for tensor in args[0]:
            if torch_tools.is_sum(args[2]):
                tensor.mul_(world_size)
    elif name in {"allgather_", "_allgather_base_"}:
        outputs = args[0] if isinstance(args[0], torch.Tensor) else args[0][0]
        source = args[1] if isinstance(args[1], torch.Tensor) else args[1][0]
        for output in outputs.view(world_size, -1) if isinstance(outputs, torch.Tensor) else outputs:
            output.copy_(source.view_as(output))


def _placeholder(dtype: torch.dtype) -> Any:
    """Return False, 1 or 1.0: a value that neither skips a step nor divides by zero."""
    if dtype is torch.bool:
        return False
    return 1.0 if dtype.is_floating_point else 1


def _is_large(args: tuple[Any, ...]) -> bool:
    size = args[0] if args else ()
    return isinstance(size, (list, tuple)) and math.prod(size) * torch.get_default_dtype().itemsize >= LARGE_BYTES


def _is_in_constructor() -> bool:
    """Return whether the constructor of a module calls this."""
    frame = sys._getframe(2)  # noqa: SLF001 - `inspect` is too slow for every factory
    caller: Any = frame
    while caller is not None:
        if caller.f_code.co_name == "__init__" and isinstance(caller.f_locals.get("self"), torch.nn.Module):
            return True
        caller = caller.f_back
    return False
