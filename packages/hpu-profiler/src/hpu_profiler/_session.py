"""Profiling sessions: torch.profiler.profile for the steps of one kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import torch.profiler
from torch.profiler import ProfilerAction

from hpu_core import bridge
from hpu_profiler._schedule import RECORD_ACTIONS
from hpu_profiler.trace.model import METADATA_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpu_profiler._schedule import StepSchedule

#: Metrics of the bridge that a trace includes. In lazy mode, this one has the graph compilations.
_BRIDGE_METRICS: Final = ("graph_compilation",)


class ProfileSession:
    """Session of torch's profiler for the steps of one kind ("training", "validation", ...).

    The schedule decides when torch records. A session can be stopped and started again.

    Attributes:
        kind: Kind of the steps; empty for a session without a Trainer.
        schedule: The schedule.
        steps: Number of steps that ended, recorded or not.
        profile: torch's profiler; None if the session is stopped.

    Args:
        kind: Kind of the steps.
        schedule: The schedule.
        options: Other arguments for torch.profiler.profile.
        metadata: Metadata for each trace.
        on_trace_ready: Called with torch's profiler for each trace.
    """

    def __init__(
        self,
        kind: str,
        schedule: StepSchedule,
        options: Mapping[str, Any],
        *,
        metadata: Mapping[str, Any],
        on_trace_ready: Callable[[Any], None],
    ) -> None:
        self.kind = kind
        self.schedule = schedule
        self.steps = 0
        self.profile: Any = None
        self._options = options
        self._metadata = metadata
        self._on_trace_ready = on_trace_ready
        self._step_offset = 0
        self._complete_steps = 0
        self._other_steps = 0
        self._metrics: dict[str, dict[str, float]] = {}

    @property
    def is_active(self) -> bool:
        """Whether torch warms up or records."""
        return self.profile is not None and self.profile.current_action is not ProfilerAction.NONE

    def start(self) -> None:
        """Start or resume the session."""
        # Looked up here, because bridges up to 1.19 replace the class when they are imported.
        profile_class = torch.profiler.profile
        # torch < 2.4 names the annotation of a step by step_num before it increments step_num.
        self._step_offset = int("cur_step" in profile_class.step.__code__.co_varnames)
        first_step = self.steps
        self.profile = profile_class(
            **self._options,
            schedule=lambda step: self.schedule(max(step - self._step_offset, first_step)),
            on_trace_ready=self._on_trace_ready,
        )
        self.profile.step_num = first_step
        self.profile.__enter__()
        self._start_trace()

    def end_step(self) -> None:
        """End a step and begin the next one."""
        self.steps += 1
        if self.profile is None:
            return
        action = self.profile.current_action
        if action in RECORD_ACTIONS:
            self._complete_steps += 1
            self._write_metadata()
        self.profile.step_num += self._step_offset
        self.profile.step()
        self.profile.step_num -= self._step_offset
        if action is not ProfilerAction.RECORD:
            self._start_trace()
        if self.schedule.is_finished:
            self.stop()

    def count_other_step(self) -> None:
        """Count a step of another kind during a recorded step; stop the session after too many."""
        self._other_steps += 1
        if self._other_steps > self.schedule.max_steps_per_trace:
            self.schedule.was_limited = True
            self.stop()

    def stop(self, *, keep_empty: bool = True) -> None:
        """Stop the session and write its trace.

        Args:
            keep_empty: Whether a trace without a complete step is written. Without a Trainer, it always is.
        """
        if self.profile is None:
            return
        if self.profile.current_action in RECORD_ACTIONS:
            self._write_metadata()
            if keep_empty or self._complete_steps or not self.kind:
                self.schedule.end_trace()
            else:
                self.schedule.discard_trace()
                self.profile.on_trace_ready = None
        profile, self.profile = self.profile, None
        profile.__exit__(None, None, None)

    def _start_trace(self) -> None:
        self._complete_steps = self._other_steps = 0
        if self._metadata.get("on_device") and self.is_active:
            self._metrics = _read_metrics()

    def _write_metadata(self) -> None:
        """Add the metadata to the trace; torch takes it only while it records, and keeps the last value."""
        now = _read_metrics() if self._metrics else {}
        metrics = {
            name: {key: value - self._metrics[name].get(key, 0) for key, value in values.items()}
            for name, values in now.items()
        }
        metadata = {
            **self._metadata,
            "steps": self._complete_steps,
            "bridge_metrics": metrics,
        }
        # TensorBoard's plugin needs this to recognize Lightning's action names.
        self.profile.add_metadata("Framework", "pytorch-lightning")
        self.profile.add_metadata_json(METADATA_KEY, json.dumps(metadata))


class SessionManager:
    """Sessions for all kinds of steps in a run, of which at most one is active.

    A step of the main kind interrupts the session of another kind. A step of another kind during the main session
    belongs to its trace.

    Args:
        main_kind: Kind of the steps that the run consists of.
        create_session: Function that returns the session for a kind.
    """

    def __init__(self, main_kind: str, create_session: Callable[[str], ProfileSession]) -> None:
        self._main_kind = main_kind
        self._create_session = create_session
        self._sessions: dict[str, ProfileSession] = {}

    @property
    def main(self) -> ProfileSession | None:
        """Session for the main kind, if one was created."""
        return self._sessions.get(self._main_kind)

    @property
    def active(self) -> ProfileSession | None:
        """Session in which torch warms up or records."""
        return next((session for session in self._sessions.values() if session.is_active), None)

    @property
    def started(self) -> list[ProfileSession]:
        """Sessions that were started and not stopped."""
        return [session for session in self._sessions.values() if session.profile is not None]

    @property
    def limited(self) -> list[ProfileSession]:
        """Sessions of which a trace reached its limit."""
        return [session for session in self._sessions.values() if session.schedule.was_limited]

    def start_step(self, kind: str) -> bool:
        """Start or resume the session for a kind, unless its steps belong to the active session.

        Returns:
            Whether a session was started or stopped.
        """
        active = self.active
        if active is not None and active.kind != kind:
            if kind != self._main_kind:
                return False
            active.stop(keep_empty=False)
        if kind not in self._sessions:
            self._sessions[kind] = self._create_session(kind)
        session = self._sessions[kind]
        starts = session.profile is None and not session.schedule.is_finished
        if starts:
            session.start()
        return starts or active is not None

    def end_step(self, kind: str) -> bool:
        """End a step.

        Returns:
            Whether a session may have changed its state.
        """
        active = self.active
        if active is not None and active.kind != kind:
            active.count_other_step()
            return True
        session = self._sessions.get(kind)
        if session is None:
            return False
        was_started = session.profile is not None
        session.end_step()
        return was_started

    def stop(self, *, keep_empty: bool = True) -> None:
        """Stop all sessions and write the trace of the active one.

        Args:
            keep_empty: Whether a trace without a complete step is written.
        """
        for session in list(self._sessions.values()):
            if not session.kind:
                # Without a Trainer, the next action starts a new session.
                del self._sessions[session.kind]
            session.stop(keep_empty=keep_empty)


def _read_metrics() -> dict[str, dict[str, float]]:
    """Return the bridge's metrics without averages, which cannot be subtracted."""
    return {
        name: {
            key: float(value)
            for key, value in bridge.metric(name).items()
            if isinstance(value, int | float) and not key.startswith("Avg")
        }
        for name in _BRIDGE_METRICS
    }
