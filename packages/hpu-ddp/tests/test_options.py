"""What a strategy takes, and what it refuses."""

from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from hpu_ddp import _options


@pytest.mark.parametrize("name", [None, "hccl"])
def test_the_backend_is_hccl(name: str | None) -> None:
    """Also where the bridge, which registers it, is not loaded yet."""
    assert _options.checked_backend(name) == "hccl"


@pytest.mark.parametrize("name", ["gloo", "nccl", "hcl", ""])
def test_other_backends_are_refused(name: str) -> None:
    """Those that do not work on a card, and those that nobody knows."""
    with pytest.raises(ValueError, match=f"`process_group_backend` must be 'hccl', .* got {name!r}: leave it out"):
        _options.checked_backend(name)


def test_a_registered_backend_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that somebody has registered for HPUs."""
    monkeypatch.setattr(dist.Backend, "OWN", "own", raising=False)
    # Torch 2.0 has no such table.
    if hasattr(dist.Backend, "backend_capability"):
        monkeypatch.setitem(dist.Backend.backend_capability, "own", ["hpu"])

    assert _options.checked_backend("own") == "own"


def test_ranks_wait_for_half_an_hour() -> None:
    """As in torch, where nothing is said."""
    assert _options.checked_timeout(None) == timedelta(minutes=30)


def test_a_timeout_is_taken() -> None:
    """As it is."""
    assert _options.checked_timeout(timedelta(seconds=7)) == timedelta(seconds=7)


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_is_refused(seconds: int) -> None:
    """Ranks are never at exactly the same point."""
    with pytest.raises(ValueError, match=f"`timeout` must be more than 0 seconds, got {seconds} s"):
        _options.checked_timeout(timedelta(seconds=seconds))


def test_a_number_is_no_timeout() -> None:
    """It could be seconds or minutes."""
    number: Any = 30
    with pytest.raises(TypeError, match=r"`timeout` must be a datetime.timedelta, got 30"):
        _options.checked_timeout(number)
