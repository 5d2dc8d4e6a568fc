"""Writer for trace files: complete files only, and errors kept until training is over."""

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
#: Bytes at the end of a file that show whether it is complete.
_TAIL_SIZE: Final = 64

_log = logging.getLogger(__name__)


class TraceWriter:
    """Writer for the traces of one run.

    Attributes:
        traces: Paths of the traces, oldest first.
        errors: Messages of failed writes.

    Args:
        directory: Directory for traces; None to keep them in a temporary directory until `cleanup`.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._temp_dir: Path | None = None
        self.traces: list[Path] = []
        self.errors: list[str] = []

    def write(self, name: str, export: Callable[[str], object]) -> Path | None:
        """Write a trace; failures are added to `errors`.

        Returns:
            Path of the trace, in a temporary directory if the intended one is not writable; None if both failed.
        """
        file_name = f"{name}.{time.time_ns()}{_SUFFIX}"
        path = self._try_write(self._directory, file_name, export) if self._directory is not None else None
        if path is None:
            if self._temp_dir is None:
                self._temp_dir = Path(tempfile.mkdtemp(prefix="hpu-profiler-"))
            path = self._try_write(self._temp_dir, file_name, export)
            if path is not None and self._directory is not None:
                self.errors.append(f"The trace was written to {path} instead.")
        if path is not None:
            self.traces.append(path)
        return path

    def add_error(self, subject: str, error: Exception) -> None:
        """Log that something could not be written, and keep the message."""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"{subject} could not be written: {reason}."
        self.errors.append(message)
        _log.warning("%s Training continues.", message)

    def cleanup(self) -> None:
        """Delete the temporary directory, unless it has traces that were meant for another directory."""
        if self._temp_dir is not None and self._directory is None:
            shutil.rmtree(self._temp_dir, ignore_errors=True)
            self.traces = []
        self._temp_dir = None

    def _try_write(self, directory: Path, file_name: str, export: Callable[[str], object]) -> Path | None:
        path = directory / file_name
        # The name of an incomplete file must not match "*.pt.trace.json".
        partial = directory / f".{file_name}.part.json"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # torch only logs that it cannot open a path.
            with partial.open("wb"):
                pass
            export(str(partial))
            _check_complete(partial)
            partial.replace(path)
        # torch wraps some errors of the operating system in RuntimeError.
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            self.add_error(f"the trace {path}", error)
            return None
        return path


def _check_complete(path: Path) -> None:
    """Raise if a trace is truncated; torch does not report a disk that fills up.

    Raises:
        OSError: The file does not end as JSON does.
    """
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _TAIL_SIZE, 0))
        tail = file.read().rstrip()
    if not tail.endswith((b"}", b"]")):
        raise OSError("the file is truncated; the disk may be full")
