"""Where traces go: whole files or none, no more than asked for, and failures that wait until training is over."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIX: Final = ".pt.trace.json"
# How much of the end of a file shows whether it is whole.
_TAIL: Final = 64

_log = logging.getLogger(__name__)


class Files:
    """The files of one profiler in one run.

    Args:
        folder: Where they go; None where only the summary needs them, for which a folder of their own is made.
        most: Traces that are kept of one name.
    """

    def __init__(self, folder: Path | None, most: int) -> None:
        self._folder = folder
        self._most = most
        self._spare: Path | None = None
        self._kept: dict[str, list[Path]] = {}
        self.failures: list[str] = []

    @property
    def traces(self) -> list[Path]:
        """Those that were written and are there, in order of their making."""
        return sorted(
            (path for paths in self._kept.values() for path in paths), key=lambda each: each.name.split(".")[-4]
        )

    def save(self, name: str, export: Callable[[str], object]) -> Path | None:
        """Write a trace under a name of its own; never raises for what a disk does.

        Args:
            name: What the file's name begins with.
            export: Writes the trace to the path that it is given.

        Returns:
            The file, which lies elsewhere than wanted if it could not be written there; None if it could nowhere.
        """
        file_name = f"{name}.{time.time_ns()}{_SUFFIX}"
        path = None
        if self._folder is not None:
            path = self._try_in(self._folder, file_name, export)
        if path is None:
            path = self._try_in(self._spare_folder(), file_name, export)
            if path is not None and self._folder is not None:
                self.failures.append(f"The trace lies at {path} instead.")
        if path is not None:
            kept = self._kept.setdefault(name, [])
            kept.append(path)
            while len(kept) > self._most:
                with contextlib.suppress(OSError):
                    kept.pop(0).unlink()
        return path

    def fail(self, what: str, error: Exception) -> None:
        """Note that something could not be written, to be told after training."""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"{what} could not be written: {reason}."
        self.failures.append(message)
        _log.warning("%s Training goes on.", message)

    def forget(self) -> None:
        """Remove what was written for the summary alone."""
        if self._spare is not None and self._folder is None:
            shutil.rmtree(self._spare, ignore_errors=True)
            self._kept = {}
        self._spare = None

    def _try_in(self, folder: Path, file_name: str, export: Callable[[str], object]) -> Path | None:
        path = folder / file_name
        # What a killed process leaves has no name that anyone takes for a trace.
        part = folder / f".{file_name}.part.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # torch tells a path that it cannot open only to its log.
            with part.open("wb"):
                pass
            export(str(part))
            _check_whole(part)
            part.replace(path)
        # torch wraps some of what the system says.
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                part.unlink()
            self.fail(f"the trace {path}", error)
            return None
        return path

    def _spare_folder(self) -> Path:
        if self._spare is None:
            self._spare = Path(tempfile.mkdtemp(prefix="hpu-profiler-"))
        return self._spare


def _check_whole(path: Path) -> None:
    """Raise if a trace has no end: torch says nothing of a disk that filled up while it wrote.

    Raises:
        OSError: It has none.
    """
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _TAIL, 0))
        tail = file.read().rstrip()
    if not tail.endswith((b"}", b"]")):
        raise OSError("the file is not whole; the disk may be full")
