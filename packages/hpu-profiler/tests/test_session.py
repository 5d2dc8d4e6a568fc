"""Profiling sessions without a Trainer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.profiler

from hpu_profiler._schedule import StepSchedule
from hpu_profiler._session import ProfileSession


class _TracesByKind(dict[str, list[dict[str, Any]]]):
    """Metadata and step annotations of the written traces."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__()
        self._path = tmp_path / "trace.json"

    def add(self, kind: str, profile: Any) -> None:
        profile.export_chrome_trace(str(self._path))
        trace = json.loads(self._path.read_text())
        names = sorted({event["name"] for event in trace["traceEvents"] if "ProfilerStep#" in event.get("name", "")})
        self.setdefault(kind, []).append({"steps": trace["hpu_profiler"]["steps"], "annotations": names})


@pytest.fixture
def traces(tmp_path: Path) -> _TracesByKind:
    """Traces written in the test."""
    return _TracesByKind(tmp_path)


@pytest.fixture
def create(traces: _TracesByKind) -> Callable[..., ProfileSession]:
    """Return a function that returns a session for a kind of step."""

    def create_session(kind: str, schedule: Any = None, max_steps_per_trace: int = 3) -> ProfileSession:
        return ProfileSession(
            kind,
            StepSchedule(schedule, max_steps_per_trace=max_steps_per_trace),
            {"activities": [torch.profiler.ProfilerActivity.CPU]},
            metadata={},
            on_trace_ready=lambda profile: traces.add(kind, profile),
        )

    return create_session


def _run_steps(session: ProfileSession, number: int) -> None:
    for _ in range(number):
        torch.ones(1).add(1)
        session.end_step()


def test_steps_are_numbered_the_same_by_torch_before_2_4(
    create: Callable[..., ProfileSession], traces: _TracesByKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That torch names the annotation of a step before it increments the number."""

    class OldProfile(torch.profiler.profile):
        def step(self) -> None:
            if self.step_rec_fn is not None:
                self.step_rec_fn.__exit__(None, None, None)
            previous = self.current_action
            cur_step = self.step_num
            self.step_num += 1
            self.current_action = self.schedule(self.step_num)  # type: ignore[assignment] # As in torch.
            self._transit_action(previous, self.current_action)
            self.step_rec_fn = torch.profiler.record_function(f"ProfilerStep#{cur_step}")
            self.step_rec_fn.__enter__()

        def stop(self) -> None:
            self._prev_schedule_action = self.current_action
            super().stop()

    monkeypatch.setattr(torch.profiler, "profile", OldProfile)
    session = create("training", torch.profiler.schedule(wait=1, warmup=0, active=2))
    session.start()
    _run_steps(session, 4)

    assert traces == {"training": [{"steps": 2, "annotations": ["ProfilerStep#1", "ProfilerStep#2"]}]}
