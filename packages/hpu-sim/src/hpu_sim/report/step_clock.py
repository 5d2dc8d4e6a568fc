"""Clock of a real run: the planner's time model applied to one training step of a program on the simulated device.

The third step is recorded, in which the optimizer has its state and DDP its buckets. Nothing is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from torch.utils._python_dispatch import TorchDispatchMode

from hpu_sim.common import frames
from hpu_sim.prediction import torch_tools
from hpu_sim.prediction.chrome_trace import trace_of_step
from hpu_sim.prediction.operation_recorder import OperationRecorder
from hpu_sim.prediction.ranges import step_range
from hpu_sim.prediction.recording import StepRecording
from hpu_sim.prediction.time_model import predict
from hpu_sim.report.schema import Clock, PredictedLine

if TYPE_CHECKING:
    from hpu_sim.device.config import SimConfig
    from hpu_sim.prediction.recording import Phase
    from hpu_sim.prediction.time_model import Mode

#: Steps of the optimizer before the one that is recorded.
STEPS_BEFORE: Final = 2
# Lines of a clock, those with most predicted time.
_MAX_LINES: Final = 50


class StepClock(TorchDispatchMode, OperationRecorder):
    """Mode that records the operators and collectives of one step, each with its line of the program."""

    def __init__(self, config: SimConfig) -> None:
        TorchDispatchMode.__init__(self)
        OperationRecorder.__init__(self)
        self._config = config
        self._optimizer: int | None = None
        self._steps = 0
        self._is_on = False
        self.clock: Clock | None = None

    def on_optimizer_step(self, optimizer: Any) -> None:
        """Begin to record after the first steps of the first optimizer, and predict after its next one."""
        if self._optimizer not in {None, id(optimizer)} or self.clock is not None:
            return
        self._optimizer = id(optimizer)
        self._steps += 1
        if self._steps == STEPS_BEFORE:
            self.step = StepRecording()
            self.__enter__()  # type: ignore[no-untyped-call] # as above
            self._is_on = True
        elif self.close():
            self.clock = _predict(self.step, self._config)

    def close(self) -> bool:
        """Stop recording, also where the program ends within the recorded step; return whether it was stopped.

        A mode that the program entered within the step and is still in makes this one stay, without effect.
        """
        is_on, self._is_on = self._is_on, False
        if not is_on or not torch_tools.is_innermost_mode(self):
            return False
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call] # as above
        return True

    @property
    def phase(self) -> Phase:
        """Part of the step."""
        return "backward" if torch_tools.is_backward() else "forward"

    @property
    def module(self) -> str:
        """Line of the program, by which the time model groups operators."""
        return frames.program_line()

    def trace(self, rank: int, world_size: int) -> dict[str, Any]:
        """Return the predicted step as a Chrome trace."""
        return trace_of_step(self.step, *_machine(self._config), rank=rank, world_size=world_size)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(each.__name__ == "DTensor" for each in types):
            return NotImplemented  # torch turns it into operators on local tensors, which come here again.
        result = func(*args, **kwargs)
        if not self._is_on or func.namespace == "prim":
            return result
        name = func._schema.name.partition("::")[2]  # noqa: SLF001 - the only name without the overload
        tensors = torch_tools.tensors_in((args, kwargs))
        on_device = any(each.device.type == "hpu" for each in tensors)
        if func.namespace == "c10d":
            self.record_c10d(func, name, args, kwargs)
        elif func.namespace == "_c10d_functional":
            if name not in {"wait_tensor", "_wrap_tensor_autograd"}:
                self.record_functional(func, name, args, kwargs, result)
        elif name in {"_local_scalar_dense", "equal", "is_nonzero"}:
            if on_device:
                self.record_sync(frames.name_in_trace(frames.program_frame()))
        else:
            self.record_operation(func, name, args, kwargs, result)
        return result

    def record_host_copy(self, name: str) -> None:
        """Record a copy to the host."""
        del name
        self.record_sync(frames.name_in_trace(frames.program_frame()))


def _machine(config: SimConfig) -> tuple[str, int, Mode]:
    return config.generation, config.devices, "lazy" if config.lazy else "eager"


def _predict(step: StepRecording, config: SimConfig) -> Clock:
    timeline, found = predict(step, *_machine(config)), step_range(step, *_machine(config))
    lines: dict[str, float] = {}
    for span in timeline.spans:
        if span.stream == "compute" and span.bound != "host":
            lines[span.module] = lines.get(span.module, 0.0) + span.seconds
    ordered = sorted(lines.items(), key=lambda item: -item[1])[:_MAX_LINES]
    return Clock(
        step=STEPS_BEFORE + 1,
        fast_seconds=found.low,
        slow_seconds=found.high,
        exposed_seconds=found.of_part(timeline.exposed),
        host_seconds=found.of_part(timeline.host),
        lines=tuple(PredictedLine(location, *found.of_part(seconds)) for location, seconds in ordered),
    )
