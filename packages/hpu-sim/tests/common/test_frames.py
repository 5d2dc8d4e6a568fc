"""Tests of the attribution of stacks to lines of the program."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from hpu_sim.common.frames import (
    MAX_STACK_DEPTH,
    backward_caller_frame,
    describe_frame,
    describe_stack,
    event_frame,
    innermost_program_line,
    program_frame,
    program_line,
    save,
    user_frame,
    with_origin,
)
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_HERE = __file__


def _call_from(file: str, name: str, function: Callable[[], Any]) -> Any:
    """Call a function from a module with a given path and name."""
    namespace = {"__name__": name, "function": function}
    exec(compile("result = function()", file, "exec"), namespace)  # noqa: S102 - code with a fake path
    return namespace["result"]


@pytest.mark.parametrize("file", ["/home/me/train.py", "<string>", "<stdin>", "<ipython-input-1-abc>"])
def test_code_of_the_program_is_found(file: str) -> None:
    found = _call_from(file, "__main__", lambda: user_frame(sys._getframe(1)))

    assert found is not None
    assert found.f_code.co_filename == file
    assert user_frame(None) is None


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
        ("/env/lib/site-packages/torch/_functorch/codegen.py:codegen(backward)", "None"),
    ],
)
def test_code_of_libraries_is_skipped(file: str, name: str) -> None:
    """Libraries count as such even in a developer's checkout."""
    found = _call_from(file, name, lambda: user_frame(sys._getframe(1)))

    assert found is not None
    assert found.f_code.co_filename == _HERE


class _Frame:
    """Fake frame."""

    def __init__(self, file: str, name: str, back: _Frame | None = None) -> None:
        self.f_code = compile("", file, "exec")
        self.f_globals = {"__name__": name}
        self.f_back = back
        self.f_lineno = 1


@pytest.fixture
def installed_stack() -> Any:
    """Stack of `python -m tool`: torch, called by `tool`, called by a package `helper`."""
    outer = _Frame("/env/lib/site-packages/helper/run.py", "helper.run")
    return _Frame("/env/torch/nn.py", "torch.nn", _Frame("/env/lib/site-packages/tool/main.py", "tool.main", outer))


def test_installed_package_is_found_if_there_is_no_program(installed_stack: Any) -> None:
    found = user_frame(installed_stack)

    assert found is not None
    assert found.f_code.co_filename == "/env/lib/site-packages/tool/main.py"


def test_code_that_torch_generates_is_no_program() -> None:
    """It has no module, only a file in torch's folder."""
    generated = _Frame("/env/lib/site-packages/torch/_functorch/codegen.py:codegen(backward)", "None")

    assert user_frame(cast("FrameType", generated)) is None


def test_events_can_be_attributed_to_an_earlier_stack() -> None:
    """The saved stack keeps no variable alive."""
    variable = torch.ones(1)
    saved, expected = save(sys._getframe()), user_frame(sys._getframe())
    alive = weakref.ref(variable)
    del variable

    with with_origin(saved):
        found = user_frame(event_frame())

    assert found is not None
    assert expected is not None
    assert (found.f_code, found.f_globals["__name__"]) == (expected.f_code, __name__)
    assert alive() is None
    assert event_frame() is not saved


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([("/me/train.py", 3), ("/env/lib/site-packages/torch/nn.py", 7)], "/me/train.py:3"),
        ([("/env/lib/site-packages/torch/nn.py", 7)], "/env/lib/site-packages/torch/nn.py:7"),
        ([], ""),
    ],
)
def test_the_innermost_line_of_the_program_is_found(places: list[tuple[str, int]], expected: str) -> None:
    assert innermost_program_line(places) == expected


def test_stack_has_lines_functions_and_source() -> None:
    frame = sys._getframe()
    (first, *others), index = describe_stack(frame, frame)  # this line

    assert (first.file, first.function, first.is_user) == (_HERE, "test_stack_has_lines_functions_and_source", True)
    assert first.source == "(first, *others), index = describe_stack(frame, frame)  # this line"
    assert index == 0
    # pytest's frame. The outermost frame is pytest's script, which may count as the program.
    assert not others[0].is_user


def _deep(depth: int, function: Callable[[], Any]) -> Any:
    return function() if depth == 0 else _deep(depth - 1, function)


def test_deep_stack_is_truncated_but_keeps_the_target() -> None:
    target = sys._getframe()

    frames, index = _deep(3 * MAX_STACK_DEPTH, lambda: describe_stack(sys._getframe(), target))

    assert len(frames) == MAX_STACK_DEPTH + 1
    assert index == MAX_STACK_DEPTH
    assert frames[index].function == target.f_code.co_name


def test_stack_omits_frames_of_the_simulator() -> None:
    frame = _call_from("/src/hpu_sim/bridge/core.py", "hpu_sim.bridge", lambda: sys._getframe(1))

    frames, _ = describe_stack(frame, None)

    assert all(each.file != "/src/hpu_sim/bridge/core.py" for each in frames)


def test_unavailable_source_is_empty() -> None:
    frame = _call_from("/nowhere/at/all.py", "__main__", lambda: sys._getframe(1))

    assert describe_frame(frame, 1).source == ""


@pytest.fixture
def backward_lines() -> Iterator[list[str]]:
    """Lines to which events of a backward pass are attributed."""
    lines: list[str] = []

    def on_event(*_: object) -> None:
        if sys._getframe().f_back is None:
            frame = backward_caller_frame()
            found = user_frame(frame)
            lines.append("no line" if found is None else f"{Path(found.f_code.co_filename).name}:{found.f_lineno}")

    native().set_listener(on_event)
    yield lines
    native().set_listener(None)


def test_backward_pass_is_attributed_to_the_call_of_backward(backward_lines: list[str]) -> None:
    loss = torch.ones(3, dtype=torch.float64, device="hpu", requires_grad=True).pow(2).sum()
    line = sys._getframe().f_lineno + 1
    loss.backward()

    assert set(backward_lines) == {f"test_frames.py:{line}"}


def test_search_for_a_backward_pass_keeps_no_frame() -> None:
    """A frame in a reference cycle would keep the tensors of its callers until the next garbage collection."""

    def call() -> weakref.ref[torch.Tensor]:
        tensor = torch.ones(1)
        # In the main thread, and outside of a backward pass.
        assert backward_caller_frame() is None
        return weakref.ref(tensor)

    gc.disable()
    try:
        reference = call()
    finally:
        gc.enable()

    assert reference() is None


def test_line_of_the_program_is_that_of_the_caller() -> None:
    line, frame, expected = program_line(), program_frame(), sys._getframe().f_lineno

    assert frame is not None
    assert line == frame.location == f"{__file__}:{expected}"
    assert frame.name_in_trace == f"{__file__}({expected}): {sys._getframe().f_code.co_name}"
