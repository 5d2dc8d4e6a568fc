"""Which line of which code is meant."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hpu_sim.report import frames as module
from hpu_sim.report.frames import MAX_STACK_DEPTH, FrameClassifier, backward_caller_frame
from hpu_sim.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_HERE = __file__


def _call_from(file: str, name: str, function: Callable[[], Any]) -> Any:
    """Call a function from a module that lies in ``file`` and is named ``name``."""
    namespace = {"__name__": name, "function": function}
    exec(compile("result = function()", file, "exec"), namespace)  # noqa: S102 - code at a made-up place
    return namespace["result"]


def _counter() -> FrameType | None:
    frame = sys._getframe(1)
    return FrameClassifier().user_frame(frame)


def test_a_programs_own_code_is_meant() -> None:
    """Wherever it lies."""
    found = _call_from("/home/me/train.py", "__main__", lambda: FrameClassifier().user_frame(sys._getframe(1)))

    assert found is not None
    assert found.f_code.co_filename == "/home/me/train.py"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/env/lib/python3.11/site-packages/numpy/core.py", "numpy.core"),
        ("/usr/lib/python3/dist-packages/yaml.py", "yaml"),
        (json.__file__, "json"),
        ("/src/checkout/lightning/pytorch/trainer.py", "lightning.pytorch.trainer"),
        ("/src/hpu-core/src/hpu_core/strategy.py", "hpu_core.strategy"),
        ("<frozen runpy>", "runpy"),
        ("<eval_with_key>.1", "fx"),
    ],
    ids=["site-packages", "dist-packages", "standard library", "framework", "sibling", "frozen", "generated"],
)
def test_a_librarys_code_is_passed_over(file: str, name: str) -> None:
    """The line that called it is meant, also for libraries that a developer has in a checkout."""
    found = _call_from(file, name, lambda: FrameClassifier().user_frame(sys._getframe(1)))

    assert found is not None
    assert found.f_code.co_filename == _HERE


@pytest.mark.parametrize("file", ["<string>", "<stdin>", "<ipython-input-1-abc>"])
def test_what_was_typed_is_the_programs_own(file: str) -> None:
    """It has no file."""
    found = _call_from(file, "__main__", lambda: FrameClassifier().user_frame(sys._getframe(1)))

    assert found is not None
    assert found.f_code.co_filename == file


class _Frame:
    """A frame of a made-up stack."""

    def __init__(self, file: str, name: str, back: _Frame | None = None) -> None:
        self.f_code = compile("", file, "exec")
        self.f_globals = {"__name__": name}
        self.f_back = back
        self.f_lineno = 1


@pytest.fixture
def installed_stack() -> Any:
    """`python -m tool`, where everything is installed: torch called by tool, called by a helper of it."""
    outer = _Frame("/env/lib/site-packages/helper/run.py", "helper.run")
    return _Frame("/env/torch/nn.py", "torch.nn", _Frame("/env/lib/site-packages/tool/main.py", "tool.main", outer))


def test_installed_code_is_meant_where_there_is_no_other(installed_stack: Any) -> None:
    """The innermost that is no framework."""
    found = FrameClassifier().user_frame(installed_stack)

    assert found is not None
    assert found.f_code.co_filename == "/env/lib/site-packages/tool/main.py"


def test_nothing_is_meant_where_no_python_runs() -> None:
    """As in a thread of the autograd engine."""
    assert FrameClassifier().user_frame(None) is None


def test_a_stack_names_lines_functions_and_source() -> None:
    """The innermost frame first."""
    classifier = FrameClassifier()
    frame = sys._getframe()
    (first, *others), index = classifier.stack(frame, frame)  # this line

    assert (first.file, first.function, first.is_user) == (_HERE, "test_a_stack_names_lines_functions_and_source", True)
    assert first.source == "(first, *others), index = classifier.stack(frame, frame)  # this line"
    assert index == 0
    # Pytest's frame; the outermost one is the program that was started, which may count as the user's.
    assert not others[0].is_user


def _deep(depth: int, function: Callable[[], Any]) -> Any:
    return function() if depth == 0 else _deep(depth - 1, function)


def test_a_deep_stack_is_cut_but_keeps_the_line_that_is_meant() -> None:
    """Which may lie far out."""
    classifier, target = FrameClassifier(), sys._getframe()

    frames, index = _deep(3 * MAX_STACK_DEPTH, lambda: classifier.stack(sys._getframe(), target))

    assert len(frames) == MAX_STACK_DEPTH + 1
    assert index == MAX_STACK_DEPTH
    assert frames[index].function == target.f_code.co_name


def test_the_simulators_own_frames_are_left_out() -> None:
    """They say nothing about the program."""
    frame = _call_from("/src/hpu_sim/bridge/core.py", "hpu_sim.bridge", lambda: sys._getframe(1))

    frames, _ = FrameClassifier().stack(frame, None)

    assert all(each.file != "/src/hpu_sim/bridge/core.py" for each in frames)


def test_a_source_that_cannot_be_read_is_empty() -> None:
    """As that of code typed at a prompt."""
    frame = _call_from("/nowhere/at/all.py", "__main__", lambda: sys._getframe(1))

    assert FrameClassifier().to_frame(frame, 1).source == ""


def test_many_functions_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may make code as long as it runs."""
    monkeypatch.setattr(module, "_MAX_CACHED", 10)
    classifier = FrameClassifier()
    for index in range(100):
        _call_from(f"/home/me/{index}.py", "__main__", lambda: classifier.user_frame(sys._getframe(1)))

    assert len(classifier._cache) <= 10


@pytest.fixture
def heard_in_backward() -> Iterator[list[str]]:
    """Files of the frames that the main thread runs while the device tells of a backward pass."""
    heard: list[str] = []

    def on_event(*_: object) -> None:
        if sys._getframe().f_back is None:
            frame = backward_caller_frame()
            found = FrameClassifier().user_frame(frame)
            heard.append("nothing" if found is None else f"{Path(found.f_code.co_filename).name}:{found.f_lineno}")

    native().set_listener(on_event)
    yield heard
    native().set_listener(None)


def test_a_backward_pass_is_where_it_was_asked_for(heard_in_backward: list[str]) -> None:
    """The engine of autograd runs in a thread without Python, while the main thread waits."""
    loss = torch.ones(3, dtype=torch.float64, device="hpu", requires_grad=True).pow(2).sum()
    line = sys._getframe().f_lineno + 1
    loss.backward()

    assert set(heard_in_backward) == {f"test_frames.py:{line}"}


def test_outside_of_a_backward_pass_the_main_thread_says_nothing() -> None:
    """It runs something else then."""
    assert backward_caller_frame() is None
