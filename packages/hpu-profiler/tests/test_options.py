"""What HPUProfiler hands to torch."""

import enum
from typing import Any

import pytest
import torch.profiler

from hpu_profiler import _options


def test_what_is_this_profilers_own_affair_is_not_handed_on() -> None:
    """Nor what only PyTorchProfiler knows."""
    given: dict[str, Any] = {"schedule": None, "on_trace_ready": print, "metric": "self_cpu_time_total"}

    options = _options.for_torch({**given, "record_shapes": True}, on_card=False)

    assert options == {"record_shapes": True, "activities": [torch.profiler.ProfilerActivity.CPU]}


def test_a_torch_without_a_name_for_the_card_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is recorded all the same."""
    older = enum.Enum("older", ["CPU", "CUDA"])
    monkeypatch.setattr(torch.profiler, "ProfilerActivity", older)

    with pytest.warns(UserWarning, match="records no HPU activity: torch .* has no name for it"):
        options = _options.for_torch({}, on_card=True)

    assert options["activities"] == [older["CPU"]]
