"""What a test may leave behind in its process: threads, children, listening ports, variables and files."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_SECONDS_TO_END: Final = 10.0
# The state LISTEN of a socket, Linux's include/net/tcp_states.h.
_LISTEN: Final = "0A"
# Those of pytest, of the terminal, and of the imports of Ray and Lightning.
_OF_OTHERS: Final = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "RAY_CLIENT_MODE", "PYTORCH_NVML_BASED_CUDA_CHECK"}
_FILES_OF_TOOLS: Final = {".coverage", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

shared_children: Final[set[int]] = set()
"""Children that several tests share, such as fork servers, whichever test has started them."""


@dataclass(frozen=True)
class Belongings:
    """What a process has at one moment.

    Attributes:
        threads: Python threads.
        children: Process ids.
        sockets: Inodes of the sockets.
        variables: Environment variables.
        files: Files of the working directory and of the folder for temporary files.
        folder: Working directory.
    """

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    sockets: frozenset[str]
    variables: dict[str, str]
    files: frozenset[Path]
    folder: str

    @classmethod
    def now(cls) -> Belongings:
        """Return what this process has."""
        folder = str(Path.cwd())
        return cls(
            # Threads of C++ that have run Python cannot be joined.
            frozenset(each for each in threading.enumerate() if not isinstance(each, threading._DummyThread)),
            frozenset(_children()),
            _sockets(),
            {name: value for name, value in os.environ.items() if name not in _OF_OTHERS},
            frozenset(
                file
                for each in {folder, tempfile.gettempdir()}
                for file in Path(each).iterdir()
                if file.name not in _FILES_OF_TOOLS
            ),
            folder,
        )

    def additions(self) -> list[str]:
        """Return a line for each thing that this process has now and did not have then, after those that are ending."""
        _end_monitors_of_tqdm()
        now = Belongings.now()
        lines = [f"thread {each.name!r}" for each in now.threads - self.threads if not _ends(each)]
        lines += [
            f"child {child} {_command(child)!r}"
            for child in now.children - self.children - shared_children
            if not _exits(child)
        ]
        if now.sockets - self.sockets:
            # Those of objects in a reference cycle are closed with them.
            gc.collect()
            lines += [f"port {port}" for port in _listening_ports(_sockets() - self.sockets)]
        names = sorted(now.variables.keys() | self.variables.keys())
        lines += [
            f"variable {name}: {self.variables.get(name)!r} is {now.variables.get(name)!r} now"
            for name in names
            if self.variables.get(name) != now.variables.get(name)
        ]
        if now.folder != self.folder:
            lines.append(f"working directory: {self.folder} is {now.folder} now")
        elif files := now.files - self.files:
            # As above.
            gc.collect()
            lines += [f"file {file}" for file in sorted(files) if os.path.lexists(file) and not _is_of_torch(file)]
        return lines


def _is_of_torch(file: Path) -> bool:
    """Return whether torch has made a file: of its compiler, of torchrun's logs, or one folder for each process."""
    # torch.distributed.nn makes the last at its import, and a child of multiprocessing does not remove it.
    if file.name.startswith(("torchinductor_", "torchelastic_")):
        return True
    # The module is of torch 2.0.
    return file.is_dir() and {each.stem for each in file.iterdir()} <= {"_remote_module_non_scriptable", "__pycache__"}


def _end_monitors_of_tqdm() -> None:
    """End the threads that tqdm and its subclasses start with their first bar, and again with the next one."""
    threads: list[Any] = threading.enumerate()
    for thread in threads:
        if thread.name == "tqdm_monitor":
            thread.exit()


def _ends(thread: threading.Thread) -> bool:
    thread.join(0.1)
    if thread.is_alive():
        # Threads of an executor in a reference cycle end with it.
        gc.collect()
        thread.join(_SECONDS_TO_END)
    return not thread.is_alive()


def _exits(child: int) -> bool:
    """Return whether a child is a process that has exited, or does so in time; the test's `Popen` collects it."""
    try:
        descriptor = os.pidfd_open(child)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], _SECONDS_TO_END)[0])
    finally:
        os.close(descriptor)


def _children() -> set[int]:
    children: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children.update(map(int, (thread / "children").read_text(encoding="utf-8").split()))
    return children


def _command(process: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def _sockets() -> frozenset[str]:
    found = set()
    # Twice for each test, so not by the slower pathlib.
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return frozenset(found)


def _listening_ports(sockets: frozenset[str]) -> list[int]:
    ports = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text(encoding="utf-8").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and fields[9] in sockets:
                    ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports
