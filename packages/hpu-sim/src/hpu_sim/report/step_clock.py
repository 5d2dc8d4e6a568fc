"""Clock of a real run: the planner's time model applied to one training step of a program on the simulated device.

The third step is recorded, in which the optimizer has its state and DDP its buckets. Nothing is measured.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common import frames
from hpu_sim.prediction import summary
from hpu_sim.prediction.chrome_trace import trace_of_recording
from hpu_sim.prediction.operation_recorder import OperationRecorder
from hpu_sim.prediction.ranges import Clock as Prediction
from hpu_sim.prediction.recording import Recording
from hpu_sim.report.schema import Clock

if TYPE_CHECKING:
    from hpu_sim.device.config import SimConfig
    from hpu_sim.prediction.recording import StepRecording

#: Steps of the optimizer before the one that is recorded.
STEPS_BEFORE: Final = 2
# Lines of a clock, those with most predicted time.
_MAX_LINES: Final = 50


class StepClock(OperationRecorder):
    """Recorder of the operators and collectives of one step, each with its line of the program."""

    def __init__(self, config: SimConfig) -> None:
        super().__init__()
        self._config = config
        self._optimizer: int | None = None
        self._steps = 0
        self._listening: contextlib.ExitStack | None = None
        self.clock: Clock | None = None

    def before_optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Begin the part of an optimizer in the recorded step. Torch calls this hook."""
        return None if self._listening is None else self._begin_optimizer(optimizer, args, kwargs)

    def on_optimizer_step(self, optimizer: Any) -> None:
        """Begin to record after the first steps of the first optimizer, and predict after its next one."""
        if self._optimizers > 0:
            self._end_optimizer(optimizer, (), {})
        if self._optimizer not in {None, id(optimizer)} or self.clock is not None:
            return
        self._optimizer = id(optimizer)
        self._steps += 1
        if self._steps == STEPS_BEFORE:
            self._listening = contextlib.ExitStack()
            self._listening.enter_context(self.listening(decomposes_attention=False, follows_optimizers=False))
        elif self._listening is not None:
            self.close()
            self.clock = _predict(self, self._config)

    def close(self) -> None:
        """Stop recording, also where the program ends within the recorded step."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    @property
    def module(self) -> str:
        """Line of the program, by which the time model groups operators."""
        return frames.program_line()

    def trace(self, rank: int, world_size: int) -> dict[str, Any]:
        """Return the predicted step as a Chrome trace."""
        return trace_of_recording(_recording(self.step, self._config, rank, world_size), self._config.generation)

    def on_read(self, name: str, value: Any) -> None:
        """Record that the host waits for a value, or for a copy."""
        del name, value
        self.record_sync(frames.name_in_trace(frames.program_frame()))


def _recording(step: StepRecording, config: SimConfig, rank: int = 0, world_size: int = 1) -> Recording:
    return Recording((), rank, world_size, config.devices, lazy=config.lazy, steps=[step])


def _predict(recorder: StepClock, config: SimConfig) -> Clock:
    prediction = Prediction(_recording(recorder.step, config), config.generation)
    found = summary.summarize(prediction)
    costs = summary.costs(prediction, found.timeline, lambda _, line: line, _MAX_LINES)
    return Clock(STEPS_BEFORE + 1, found.time, costs, tuple(sorted(recorder.notes)))
