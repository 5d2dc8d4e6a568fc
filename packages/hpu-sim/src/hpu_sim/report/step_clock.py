"""Prediction of one training step of a run: the planner's time model applied to what the program does in it.

The third step is recorded, in which the optimizer has its state and DDP its buckets. Nothing is measured.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common import frames
from hpu_sim.device import events
from hpu_sim.prediction.recorder import Recorder
from hpu_sim.prediction.recording import Recording, StepRecording
from hpu_sim.prediction.step import Step, summarize
from hpu_sim.prediction.time_model import Clock
from hpu_sim.report.schema import RECORDED_STEP

if TYPE_CHECKING:
    from hpu_sim.device.config import SimConfig
    from hpu_sim.prediction.steps import StepTracker

# Lines of a step, those with most predicted time.
_MAX_LINES: Final = 50


class StepClock(Recorder):
    """Recorder of the operators and collectives of one step, each with its line of the program.

    Args:
        config: Simulated machine.
        steps: Tracker of the program's steps, of whose ends :meth:`on_step` is told.

    Attributes:
        recording: The recorded step, and the machine.
        predicted: Predicted step; None before it.
    """

    def __init__(self, config: SimConfig, steps: StepTracker) -> None:
        super().__init__(steps)
        self._generation = config.generation
        self.recording = Recording(devices=config.devices, lazy=config.lazy)
        self.predicted: Step | None = None
        self._unsubscribe = events.subscribe(events.OPTIMIZERS, self.on_event)

    def on_step(self) -> None:
        """Listen to operators from the step before the recorded one on, of which one shows its end."""
        try:
            if self.steps.step == RECORDED_STEP - 1:
                self.close()
                self._unsubscribe = events.subscribe(events.OPERATORS | events.OPTIMIZERS, self.on_event)
            elif self.steps.step == RECORDED_STEP:
                self.reset()
                self.step = StepRecording()
            elif self.steps.step == RECORDED_STEP + 1:
                self.close()
                # What the next step begins with is no part of it.
                self.recording.steps, self.step = [self.step], StepRecording()
                clock = Clock(self.recording, self._generation)
                self.predicted = summarize(clock, lambda _, line: line, _MAX_LINES)
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            self.close()
            sys.stderr.write(f"hpu-sim: cannot predict the time of a step: {error!r}\n")

    def close(self) -> None:
        """Stop recording, also where the program ends within the recorded step."""
        self._unsubscribe()

    @property
    def module(self) -> str:
        """Line of the program, by which the time model groups operators."""
        return frames.program_line()

    def on_read(self, name: str, value: Any) -> None:
        """Record that the host waits for a value, or for a copy."""
        del name, value
        self.record_sync("")
