"""Prediction of one training step of a run: the planner's time model applied to what the program does in it.

The third step is recorded, in which the optimizer has its state and DDP its buckets. The recorder begins a step
earlier, because only events show where a step ends. Nothing is measured.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hpu_sim.device import events
from hpu_sim.prediction.recorder import Recorder
from hpu_sim.prediction.recording import Recording, StepRecording
from hpu_sim.prediction.step import Step, summarize
from hpu_sim.prediction.time_model import Clock
from hpu_sim.report.schema import RECORDED_STEP

if TYPE_CHECKING:
    from hpu_sim.device.config import SimConfig
    from hpu_sim.prediction.steps import StepTracker


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
        self._unsubscribe = events.subscribe(events.OPERATORS | events.OPTIMIZERS, self.on_event)

    def on_step(self) -> None:
        """Begin the step that is recorded, or predict it at its end."""
        try:
            if self.steps.step == RECORDED_STEP:
                self.begin()
            elif self.steps.step == RECORDED_STEP + 1:
                self.close()
                # What the next step begins with is no part of it.
                self.recording.steps, self.step = [self.step], StepRecording()
                clock = Clock(self.recording, self._generation)
                self.predicted = summarize(clock, lambda _, line: line)
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            self.close()
            sys.stderr.write(f"hpu-sim: cannot predict the time of a step: {error!r}\n")

    def close(self) -> None:
        """Stop recording, also where the program ends within the recorded step."""
        self._unsubscribe()
