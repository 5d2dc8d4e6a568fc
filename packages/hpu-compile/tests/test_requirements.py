"""Tests of what torch.compile needs on a Gaudi."""

import pytest

from hpu_compile import _requirements, _torch
from hpu_core import bridge


@pytest.fixture
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "is_lazy", lambda: False)
    monkeypatch.setattr(_torch, "supports_regions", lambda: True)


@pytest.mark.usefixtures("_eager")
def test_lazy_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "is_lazy", lambda: True)
    with pytest.raises(RuntimeError, match=r"lazy mode exclude each other.*: set PT_HPU_LAZY_MODE=0 before it starts"):
        _requirements.validate([])


@pytest.mark.usefixtures("_eager")
def test_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch, "supports_regions", lambda: False)
    with pytest.raises(RuntimeError, match=r"needs torch 2.5 or newer \(SynapseAI 1.19\)"):
        _requirements.validate([])
