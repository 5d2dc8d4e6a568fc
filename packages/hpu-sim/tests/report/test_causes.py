"""Tests of the causes of events inside frameworks."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hpu_sim.report.sites import find_cause

if TYPE_CHECKING:
    from types import FrameType

# Fakes of Lightning's classes, with its names of modules and functions.
_CALLBACK = """
class Callback: pass
class Checkpoint(Callback):
    def on_train_epoch_end(self, event):
        return self.save(event)
    def save(self, event):
        return event()
"""
_LOOP = """
class Loop:
    def run(self, event):
        return helper(event)
def helper(event):
    return event()
"""


def _module(name: str, source: str) -> Any:
    module = ModuleType(name)
    exec(compile(source, f"/env/{name}.py", "exec"), vars(module))  # noqa: S102 - fake of a framework
    return module


def _frame() -> FrameType:
    return sys._getframe(1)


def _cause(function: Any, *arguments: Any, **options: Any) -> str:
    """Return the cause of an event in a function that this function calls."""
    user = sys._getframe()
    return str(function(*arguments, event=lambda: find_cause(_frame().f_back, user), **options))


def test_callback_is_named_with_its_hook() -> None:
    checkpoint = _module("lightning.pytorch.callbacks.checkpoint", _CALLBACK).Checkpoint()

    assert _cause(checkpoint.on_train_epoch_end) == "Checkpoint.on_train_epoch_end"


def test_method_is_preferred_to_function() -> None:
    loop = _module("lightning.pytorch.loops.fit_loop", _LOOP)

    assert _cause(loop.Loop().run) == "Loop.run"
    assert _cause(loop.helper) == "lightning.pytorch.loops.fit_loop.helper"


def test_torch_is_not_a_cause() -> None:
    assert _cause(_module("torch.nn.modules.module", _LOOP).Loop().run) == ""
