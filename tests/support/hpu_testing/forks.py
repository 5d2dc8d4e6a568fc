"""Forks in place of new interpreters, for the Python programs that a process starts."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpu_testing.limits import allow_for_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_PR_SET_CHILD_SUBREAPER = 36
# The position, in the arguments of `fork_exec`, of the pipe that reports failures.
_FAILURES = 13


class Forks:
    """Context in which a fork server starts the Python programs that this process starts and that import torch.

    Each is a child of this process, in its session and process group, with the state that `subprocess` would give it.

    Args:
        server: Function that returns the connection to the server, which descends from this process.
    """

    def __init__(self, server: Callable[[], socket.socket]) -> None:
        self._server = server
        self._libc = ctypes.CDLL(None)
        self._posix: Any = importlib.import_module("_posixsubprocess")
        self._fork_exec, self._posix_spawn, self._execv = self._posix.fork_exec, os.posix_spawn, os.execv

    def __enter__(self) -> None:
        self._stack = contextlib.ExitStack()
        # `subprocess` has a name of its own since Python 3.11.
        started = [(module, name) for module, name in ((self._posix, "fork_exec"), (subprocess, "_fork_exec"))]
        new: list[tuple[Any, str, Any]] = [(each, name, self._start) for each, name in started if hasattr(each, name)]
        # From Python 3.13 on, `subprocess` calls `os.posix_spawn` for pipes, unless this documented name is false.
        new.append((subprocess, "_USE_POSIX_SPAWN", False))
        for module, name, function in [*new, (os, "posix_spawn", self._spawn), (os, "execv", self._execute)]:
            self._stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, function)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _fork(self, command: Sequence[Any], environment: Mapping[str, str], **state: Any) -> int | None:
        """Return the process id of a forked program; None for a command that is to start otherwise."""
        arguments = _program([os.fsdecode(each) for each in command])
        if arguments is None or _has_hook(environment.get("PYTHONPATH", "")):
            return None
        allow_for_program()
        files = state.pop("files", (0, 1, 2))
        state = {"folder": str(Path.cwd()), "numbers": [0, 1, 2], "session": False, **state}
        request = {"adopted": True, "arguments": arguments, "environment": {**environment}, "filters": [], **state}
        with socket_pair() as (status, its):
            # The process that forks the program exits, and leaves it to this one.
            self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._server(), [json.dumps(request).encode()], [its.fileno(), *files])
                its.close()
                return int(status.recv(16) or 0) or None
            except OSError:
                return None
            finally:
                self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
                status.close()

    def _start(self, *given: Any) -> int:
        # The arguments of all versions of Python begin alike.
        command, _, close, kept, folder, environment = given[:6]
        # A process group, a user, a function to call first.
        changed = [each for each in given[16:] if not (each is None or each == -1 or isinstance(each, bool))]
        if changed or not close:
            return int(self._fork_exec(*given))
        variables = os.environ if environment is None else dict(os.fsdecode(each).split("=", 1) for each in environment)
        numbers = [0, 1, 2, *(each for each in kept if each != given[_FAILURES])]
        files = [inherited if file == -1 else file for inherited, file in enumerate((given[6], given[9], given[11]))]
        more = {} if folder is None else {"folder": os.fsdecode(folder)}
        state = {"numbers": numbers, "files": [*files, *numbers[3:]], "session": bool(given[15]), **more}
        return self._fork(command, variables, **state) or int(self._fork_exec(*given))

    def _spawn(self, path: Any, command: Any, environment: Mapping[str, str], **options: Any) -> int:
        return self._fork(command, environment) or self._posix_spawn(path, command, environment, **options)

    def _execute(self, path: Any, command: Any) -> None:
        """Exit as the program does, which has a process of its own."""
        child = self._fork(command, os.environ)
        if child is None:
            self._execv(path, command)
        else:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code < 0:
                signal.signal(-code, signal.SIG_DFL)
                os.kill(os.getpid(), -code)
            os._exit(code)


@contextlib.contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the context of a socket that stays open, unless an error ends it, and one for another process."""
    with contextlib.ExitStack() as stack:
        own, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
        stack.enter_context(own)
        with its:
            yield own, its
        stack.pop_all()


def _program(command: list[str]) -> list[str] | None:
    """Return what follows ``python`` in the command of a program that imports torch; None for another command."""
    path = Path(command[0])
    if command[0] != sys.executable:
        # Scripts that an installation has made.
        return command if path.parent == Path(sys.executable).parent and path.read_bytes()[:2] == b"#!" else None
    arguments = command[2:] if command[1:2] == ["-u"] else command[1:]
    if arguments[:1] == ["-c"]:
        return arguments if re.search(r"torch|hpu_sim|multiprocessing\.spawn|exec\(eval", arguments[1]) else None
    is_program = arguments[:1] == ["-m"] or not "".join(arguments[:1]).startswith("-")
    return arguments if arguments and is_program and "hpu_testing.fork_server" not in arguments else None


def _has_hook(path: str) -> bool:
    """Return whether Python would import a hook from a PYTHONPATH, other than the simulator's own."""
    folders = [Path(each) for each in path.split(os.pathsep) if each]
    return any(folder.name != "site_hook" and (folder / "sitecustomize.py").exists() for folder in folders)
