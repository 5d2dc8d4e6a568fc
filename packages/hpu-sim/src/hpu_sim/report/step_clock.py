"""Clock of a real run: the planner's time model applied to one training step of a program on the simulated device.

The third step is recorded, in which the optimizer has its state and DDP its buckets. Nothing is measured.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_sim.common import frames
from hpu_sim.device import events
from hpu_sim.prediction import bridge_kernels
from hpu_sim.prediction.chrome_trace import trace_of
from hpu_sim.prediction.flops import ATTENTION
from hpu_sim.prediction.operation_recorder import OperationRecorder
from hpu_sim.prediction.recording import Recording, StepRecording
from hpu_sim.prediction.summary import summarize
from hpu_sim.prediction.time_model import Clock
from hpu_sim.report.schema import PredictedStep, Replaceable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.device.config import SimConfig
    from hpu_sim.prediction.recording import Operation

#: Steps before the one that is recorded.
STEPS_BEFORE: Final = 2
# Lines of a clock, those with most predicted time.
_MAX_LINES: Final = 50
# Frames above an operator in which a function of torch that runs it is looked for.
_MAX_DEPTH: Final = 12


class StepClock(OperationRecorder):
    """Recorder of the operators and collectives of one step, each with its line of the program.

    Attributes:
        predicted: Predicted step; None before it.
        recorded: What it did.
    """

    # It listens to optimizers all the time.
    kinds = events.OPERATORS

    def __init__(self, config: SimConfig, on_predicted: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._config = config
        self._on_predicted = on_predicted
        self._listening = contextlib.ExitStack()
        self._is_recording = False
        self.predicted: PredictedStep | None = None
        self.recorded = StepRecording()
        # Kernel, and the first and last operator that it could replace, of each call.
        self.replaceable_calls: list[tuple[str, int, int]] = []
        self._begun = 0
        # Call of `clip_grad_norm_` that runs, and the collectives before it.
        self._clipping, self._collectives = 0, 0
        self._listening.callback(events.subscribe(events.OPTIMIZERS, self.on_event))

    def before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Begin the part of an optimizer."""
        del optimizer
        self._begun = len(self.step.operations)

    def after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Take what torch's AdamW did as a call that a kernel could replace."""
        if self._is_recording and type(optimizer) is torch.optim.AdamW:
            self._add_replaceable("FusedAdamW", self._begun)

    def on_step(self) -> None:
        """Listen to operators from the step before the recorded one on, of which one shows its end."""
        try:
            if self.steps.step == STEPS_BEFORE:
                self._listening.enter_context(self.listening(decomposes_attention=False))
            elif self.steps.step == STEPS_BEFORE + 1:
                self._is_recording = True
                self.step = StepRecording()
                self.replaceable_calls.clear()
                self.forget_pending()
            elif self._is_recording:
                self.close()
                self.recorded, self.step = self.step, StepRecording()
                self.predicted = self._predict()
                self._on_predicted()
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            self.close()
            sys.stderr.write(f"hpu-sim: cannot predict the time of a step: {error!r}\n")

    def record_operation(self, function: Any, values: tuple[Any, ...], results: tuple[Any, ...]) -> Operation | None:
        """Record an operator, and which function of torch runs it that a kernel of the bridge could replace.

        The functions are known by their code on the stack: replacing one would change what torch.compile guards.
        """
        operation = super().record_operation(function, values, results)
        if operation is None or not self._is_recording:
            return operation
        index, frame = len(self.step.operations) - 1, frames.event_frame()
        codes = bridge_kernels.codes()
        names, depth = {}, 0
        while frame is not None and depth < _MAX_DEPTH:
            if frame.f_code in codes:
                names[codes[frame.f_code]] = id(frame)
            frame, depth = frame.f_back, depth + 1
        is_attention = ATTENTION in function.name and "backward" not in function.name
        if is_attention and "fused attention" not in names:
            self.notes.add(bridge_kernels.DECOMPOSED)
            self.replaceable_calls.append(("FusedSDPA", index, index + 1))
        if "dropout" in names:
            # The first operator of a call draws the numbers.
            operation.is_launched = function.name == "bernoulli_"
        if "clipping" in names:
            self._add_to_clipping(names["clipping"], index)
        return operation

    def _add_to_clipping(self, call: int, index: int) -> None:
        """Add an operator to a call of `clip_grad_norm_`; not where ranks share a norm."""
        if len(self.step.collectives) != self._collectives and call == self._clipping:
            self.replaceable_calls = [each for each in self.replaceable_calls if each[0] != "FusedClipNorm"]
            return
        if call == self._clipping and self.replaceable_calls[-1:] and self.replaceable_calls[-1][0] == "FusedClipNorm":
            begun = self.replaceable_calls.pop()[1]
        else:
            begun = index
        self._clipping, self._collectives = call, len(self.step.collectives)
        self.replaceable_calls.append(("FusedClipNorm", begun, index + 1))

    def _add_replaceable(self, kernel: str, begun: int) -> None:
        if len(self.step.operations) > begun:
            self.replaceable_calls.append((kernel, begun, len(self.step.operations)))

    def finish(self) -> None:
        """Take the end of the program as that of a step."""
        if self.steps.is_ending:
            self.steps.end()
        self.close()

    def close(self) -> None:
        """Stop recording, also where the program ends within the recorded step."""
        self._is_recording = False
        self._listening.close()

    @property
    def module(self) -> str:
        """Line of the program, by which the time model groups operators."""
        return frames.program_line()

    def trace(self, rank: int, world_size: int) -> dict[str, Any]:
        """Return the predicted step as a Chrome trace."""
        return trace_of(self._clock(self.recorded, rank, world_size))

    def _clock(self, step: StepRecording, rank: int = 0, world_size: int = 1) -> Clock:
        config = self._config
        recording = Recording((), rank, world_size, config.devices, lazy=config.lazy, steps=[step])
        return Clock(recording, config.generation)

    def _predict(self) -> PredictedStep:
        step = summarize(self._clock(self.recorded), lambda _, line: line, _MAX_LINES)
        kernels = sorted({kernel for kernel, _, _ in self.replaceable_calls})
        replaceable = tuple(self._replaceable(kernel, step.seconds) for kernel in kernels)
        return PredictedStep(STEPS_BEFORE + 1, step, tuple(sorted(self.notes)), replaceable)

    def _replaceable(self, kernel: str, seconds: float) -> Replaceable:
        """Return what a kernel would change: its parts are one launch, as the planner takes the bridge's kernels."""
        calls = [(start, end) for name, start, end in self.replaceable_calls if name == kernel]
        operations = list(self.recorded.operations)
        launched = 0
        for start, end in calls:
            launched += sum(each.is_launched for each in operations[start:end])
            operations[start + 1 : end] = [replace(each, is_launched=False) for each in operations[start + 1 : end]]
        shorter = self._clock(replace(self.recorded, operations=operations)).timeline.seconds
        lines = dict.fromkeys(each.module for start, end in calls for each in operations[start:end])
        return Replaceable(kernel, launched, len(calls), tuple(filter(None, lines)), max(0.0, seconds - shorter))

    def on_read(self, name: str, value: Any) -> None:
        """Record that the host waits for a value, or for a copy."""
        del name, value
        frame = frames.program_frame()
        self.record_sync("" if frame is None else frame.name_in_trace)
