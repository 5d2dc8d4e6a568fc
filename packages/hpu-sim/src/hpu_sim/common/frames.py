"""Attribution of Python stacks to the line of the program that caused an event."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import linecache
import sys
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType, TracebackType

#: Maximum number of frames kept of a stack, from the innermost outwards.
MAX_STACK_DEPTH: Final = 40

CallPath = tuple[tuple[int, int], ...]

# Packages that are never the program, wherever they are: developers may have them in a checkout.
_FRAMEWORKS: Final = frozenset(
    {
        "accelerate",
        "deepspeed",
        "habana_frameworks",
        "hpu_bucketing",
        "hpu_compat",
        "hpu_compile",
        "hpu_core",
        "hpu_data",
        "hpu_ddp",
        "hpu_deepspeed",
        "hpu_doctor",
        "hpu_export",
        "hpu_fsdp",
        "hpu_kernels",
        "hpu_launch",
        "hpu_lightning",
        "hpu_precision",
        "hpu_profiler",
        "hpu_ray",
        "hpu_sim",
        "lightning",
        "lightning_fabric",
        "lightning_habana",
        "pytorch_lightning",
        "torch",
        "transformers",
    }
)
#: Packages that act on behalf of their caller.
TRANSPARENT: Final = frozenset({"torch", "habana_frameworks", "hpu_sim"})
_INSTALLED: Final = ("site-packages", "dist-packages")
_RUNNER: Final = "hpu_sim.plan.execution"
_OWN: Final = f"{Path(__file__).parents[1]}/"
# Code from a prompt or `python -c` has such a name instead of a path.
_TYPED: Final = ("<string>", "<stdin>", "<ipython-input")

_this_thread: Final = threading.local()


@dataclass(frozen=True)
class Frame:
    """A frame of a Python stack.

    Attributes:
        file: Path of the source file, as in the code object.
        line: Line number, from 1.
        function: Name of the function.
        source: Text of the line without indentation; empty if the source is not available.
        is_user: Whether the code belongs to the program rather than to a library.
    """

    file: str
    line: int
    function: str
    source: str
    is_user: bool

    @property
    def location(self) -> str:
        """Position as ``file:line``."""
        return f"{self.file}:{self.line}"

    @property
    def name_in_trace(self) -> str:
        """Name in a trace of torch's profiler, "train.py(12): training_step"."""
        return f"{self.file}({self.line}): {self.function}"


class _SavedFrame(NamedTuple):
    """Position of a frame, with the attributes of a frame that this package reads, but none of its variables."""

    f_code: CodeType
    f_lineno: int
    f_lasti: int
    f_globals: dict[str, Any]
    f_locals: dict[str, Any]
    f_back: FrameType | None


def save(frame: FrameType | None) -> FrameType | None:
    """Return a copy of a stack for :func:`with_origin`, which keeps no variable of the program alive."""
    stack = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    saved = None
    for each in reversed(stack):
        module = {"__name__": each.f_globals.get("__name__")}
        saved = cast("FrameType", _SavedFrame(each.f_code, each.f_lineno, each.f_lasti, module, {}, saved))
    return saved


@contextlib.contextmanager
def with_origin(frame: FrameType | None) -> Iterator[None]:
    """Attribute the events of this thread to a saved stack, for work that the program has asked for earlier."""
    _this_thread.origin = frame
    try:
        yield
    finally:
        _this_thread.origin = None


def event_frame() -> FrameType | None:
    """Return the innermost frame of an event that calls the caller of this function."""
    saved: FrameType | None = getattr(_this_thread, "origin", None)
    return saved or sys._getframe(1).f_back  # noqa: SLF001 - `inspect` is too slow for every event


def call_path(frame: FrameType | None) -> CallPath:
    """Return code object id and bytecode offset of every frame, outermost first."""
    path = []
    while frame is not None:
        path.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    path.reverse()
    return tuple(path)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the program.

    Under ``python -m package`` there is none: then that of an installed package that is not a framework, if any. What
    runs a program that is planned is no part of it.
    """
    installed = None
    while frame is not None and frame.f_globals.get("__name__") != _RUNNER:
        origin = _origin(frame)
        if origin == "program":
            return frame
        if installed is None and origin == "installed":
            installed = frame
        frame = frame.f_back
    return installed


def _program_frame() -> FrameType | None:
    return user_frame(backward_caller_frame() or sys._getframe(1).f_back)  # noqa: SLF001 - `inspect` is slow


def program_frame() -> Frame | None:
    """Return the innermost frame of the program that this thread runs or, in a backward pass, waits for."""
    frame = _program_frame()
    return None if frame is None else describe_frame(frame, frame.f_lineno)


def program_line() -> str:
    """Return ``file:line`` of :func:`program_frame`, for every launch; empty without one."""
    frame = _program_frame()
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def library_frame() -> Frame | None:
    """Return the innermost frame of a library, other than torch, that the program has called; None without one."""
    innermost = backward_caller_frame() or sys._getframe(1)  # noqa: SLF001 - `inspect` is slow
    program, frame = user_frame(innermost), cast("FrameType | None", innermost)
    while frame is not None and frame is not program and package(frame) in TRANSPARENT:
        frame = frame.f_back
    return None if frame is None or frame is program else describe_frame(frame, frame.f_lineno)


def innermost_program_line(places: Iterable[tuple[str, int | str]]) -> str:
    """Return ``file:line`` of the last place in a file of the program, else of the last one; empty without any."""
    lines = [(f"{file}:{line}", _classify(file, "") == "program") for file, line in places]
    program = [line for line, is_program in lines if is_program]
    return (program or [line for line, _ in lines] or [""])[-1]


def describe_stack(frame: FrameType | None, target: FrameType | None) -> tuple[tuple[Frame, ...], int | None]:
    """Return up to :data:`MAX_STACK_DEPTH` frames without those of hpu_sim, innermost first, and the target's index.

    Args:
        frame: Innermost frame.
        target: Frame to include even if it is beyond the maximum depth.
    """
    frames: list[Frame] = []
    index = None
    while frame is not None and (len(frames) < MAX_STACK_DEPTH or (target is not None and index is None)):
        if frame is target:
            index = len(frames)
        if package(frame) != "hpu_sim" and (len(frames) < MAX_STACK_DEPTH or frame is target):
            frames.append(describe_frame(frame, frame.f_lineno))
        frame = frame.f_back
    return tuple(frames), index


def describe_frame(frame: FrameType, line: int) -> Frame:
    """Return a frame as data."""
    code = frame.f_code
    source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return Frame(code.co_filename, line, code.co_name, source, is_user=is_program(frame))


def package(frame: FrameType) -> str:
    """Return the top-level package of a frame's module."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def is_program(frame: FrameType) -> bool:
    """Return whether a frame belongs to the program."""
    return _origin(frame) == "program"


def program_tracebacks(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the parts of a traceback that belong to the program, outermost first."""
    while traceback is not None:
        if is_program(traceback.tb_frame):
            yield traceback
        traceback = traceback.tb_next


def _origin(frame: FrameType) -> Literal["program", "installed", "framework"]:
    return _classify(frame.f_code.co_filename, package(frame))


# Bounded, because a program may create code objects as long as it runs.
@functools.lru_cache(maxsize=10_000)
def _classify(file: str, package: str) -> Literal["program", "installed", "framework"]:
    # The program of `hpu-sim plan --model` is none of a user's.
    if package in _FRAMEWORKS or file.startswith(_OWN):
        return "framework"
    if file.startswith("<"):
        return "program" if file.startswith(_TYPED) else "framework"
    parts = frozenset(Path(file).parts)
    if not parts.isdisjoint(_INSTALLED):
        # Code that torch generates has no module, only a file in torch's folder.
        return "installed" if parts.isdisjoint(_FRAMEWORKS) else "framework"
    return "framework" if file.startswith(_standard_library()) else "program"


@functools.cache
def _standard_library() -> tuple[str, ...]:
    paths = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")]
    return tuple({f"{path}/" for path in paths} | {f"{Path(path).resolve()}/" for path in paths})


def backward_caller_frame() -> FrameType | None:
    """Return the innermost frame of the main thread if that waits for the autograd engine, else None."""
    main = threading.main_thread().ident or 0
    if threading.get_ident() == main:
        # The frame would be this one, and a frame that refers to itself keeps the tensors of all its callers.
        return None
    frame = sys._current_frames().get(main)  # noqa: SLF001 - documented API
    return frame if frame is not None and frame.f_code.co_filename.startswith(_autograd_folder()) else None


@functools.cache
def _autograd_folder() -> str:
    spec = importlib.util.find_spec("torch.autograd")
    return str(Path(spec.origin).parent) if spec is not None and spec.origin else "<torch.autograd>"
