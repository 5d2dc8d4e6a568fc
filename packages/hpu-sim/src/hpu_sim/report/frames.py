"""Attribution of Python stacks to the line of the program that caused an event."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpu_sim.report.schema import Frame

if TYPE_CHECKING:
    from types import CodeType, FrameType

#: Maximum number of frames kept of a stack, from the innermost outwards.
MAX_STACK_DEPTH: Final = 40

# Packages that are never the program, wherever they are: developers may have them in a checkout.
_FRAMEWORKS: Final = frozenset(
    {
        "accelerate",
        "deepspeed",
        "habana_frameworks",
        "hpu_core",
        "hpu_ddp",
        "hpu_deepspeed",
        "hpu_precision",
        "hpu_profiler",
        "hpu_sim",
        "lightning",
        "lightning_fabric",
        "lightning_habana",
        "pytorch_lightning",
        "torch",
        "transformers",
    }
)
_INSTALLED: Final = ("site-packages", "dist-packages")
# Code from a prompt or `python -c` has such a name instead of a path.
_TYPED: Final = ("<string>", "<stdin>", "<ipython-input")

_USER: Final = 0
_INSTALLED_CODE: Final = 1
_FRAMEWORK: Final = 2

_MAX_CACHED: Final = 20_000


class FrameClassifier:
    """Classifier of frames: program, installed package or framework. Results are cached per code object."""

    def __init__(self) -> None:
        # The entry keeps the code object alive, so its id stays unique.
        self._cache: dict[int, tuple[int, CodeType]] = {}
        paths = sysconfig.get_paths()
        self._standard_library = tuple(
            {str(Path(paths[name]).resolve()) + "/" for name in ("stdlib", "platstdlib")}
            | {paths[name] + "/" for name in ("stdlib", "platstdlib")}
        )

    def user_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame of the program.

        Args:
            frame: Innermost frame of the stack, or None.

        Returns:
            The innermost frame of the program. Under ``python -m package`` there is none: then the innermost frame of
            an installed package that is not a framework. None if there is neither.
        """
        cache = self._cache
        installed = None
        while frame is not None:
            code = frame.f_code
            entry = cache.get(id(code)) or self._lookup(frame)
            if entry[0] == _USER:
                return frame
            if installed is None and entry[0] == _INSTALLED_CODE:
                installed = frame
            frame = frame.f_back
        return installed

    def stack(self, frame: FrameType | None, target: FrameType | None) -> tuple[tuple[Frame, ...], int | None]:
        """Return up to :data:`MAX_STACK_DEPTH` frames, innermost first, without frames of hpu_sim.

        Args:
            frame: Innermost frame.
            target: Frame to include even if it is beyond the maximum depth.

        Returns:
            The frames, and the index of the target.
        """
        frames: list[Frame] = []
        index = None
        while frame is not None and (len(frames) < MAX_STACK_DEPTH or (target is not None and index is None)):
            if frame is target:
                index = min(len(frames), MAX_STACK_DEPTH)
            if not _is_own(frame) and (len(frames) < MAX_STACK_DEPTH or frame is target):
                frames.append(self.to_frame(frame, frame.f_lineno))
            frame = frame.f_back
        return tuple(frames), index

    def to_frame(self, frame: FrameType, line: int) -> Frame:
        """Return a frame as data.

        Args:
            frame: The frame.
            line: Line number to show.
        """
        code = frame.f_code
        entry = self._cache.get(id(code)) or self._lookup(frame)
        source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        return Frame(code.co_filename, line, code.co_name, source, is_user=entry[0] == _USER)

    def _lookup(self, frame: FrameType) -> tuple[int, CodeType]:
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        code = frame.f_code
        entry = (self._classify(code.co_filename, str(frame.f_globals.get("__name__"))), code)
        self._cache[id(code)] = entry
        return entry

    def _classify(self, file: str, module: str) -> int:
        if module.partition(".")[0] in _FRAMEWORKS:
            return _FRAMEWORK
        if file.startswith("<"):
            return _USER if file.startswith(_TYPED) else _FRAMEWORK
        if not set(_INSTALLED).isdisjoint(Path(file).parts):
            return _INSTALLED_CODE
        return _FRAMEWORK if file.startswith(self._standard_library) else _USER


def backward_caller_frame() -> FrameType | None:
    """Return the frame of the main thread that waits for the autograd engine.

    Returns:
        The innermost frame of the main thread if it is in a backward pass, else None.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - documented API
    return frame if frame is not None and frame.f_code.co_filename.startswith(_autograd_folder()) else None


def _autograd_folder() -> str:
    global _autograd  # noqa: PLW0603 - looked up once per process
    if _autograd is None:
        spec = importlib.util.find_spec("torch.autograd")
        _autograd = str(Path(spec.origin).parent) if spec is not None and spec.origin else "<torch.autograd>"
    return _autograd


_autograd: str | None = None


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "hpu_sim"
