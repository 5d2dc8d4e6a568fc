"""Fork server: Python programs that start with torch imported.

That import, with what Lightning imports of torch, takes most of the time of a short training. A program whose test is
not about imports starts as a fork of a server that has imported it without the simulator. The simulator starts in the
fork, as torch loads device backends there. Python scripts and processes of the "spawn" method that the program starts
are forks too, by a server of its own; other processes are not.

``python -m hpu_testing.fork_server DESCRIPTOR MODULE ...`` is the server. It exits when its connection is closed.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import fcntl
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# No module of Lightning's: hpu-core registers with it on its import.
_PRELOADED = ("torch", "torch._dynamo", "torch.distributed.fsdp", "torchmetrics")
_MAX_REQUEST_BYTES = 1 << 17
_MAX_DESCRIPTORS = 32
# Above all descriptors that a process has when it receives those of a request.
_FIRST_FREE_DESCRIPTOR = 200
_PR_SET_CHILD_SUBREAPER = 36


class ForkedProcess:
    """A program that the server started, with what tests need of `subprocess.Popen`.

    Attributes:
        pid: Process id, which is also the session id.
    """

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self._code: int | None = None
        self.pid = int(status.recv(16))

    def kill(self) -> None:
        """Kill the process, unless it has exited."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> int:
        """Wait until the process has exited, and return its exit code, negative for a signal.

        Args:
            seconds: Time after which it is killed.
        """
        if self._code is None:
            self._status.settimeout(seconds)
            try:
                code = self._status.recv(16)
            except TimeoutError:
                self.kill()
                self._status.settimeout(None)
                code = self._status.recv(16)
            self._status.close()
            self._code = int(code)
        return self._code


class ForkServer:
    """Client of a fork server, which starts with the first program and exits with this process.

    Args:
        environment: Environment of the first program. All others must have the same PYTHONPATH.
        preloaded: Modules to import ahead, where installed.
    """

    def __init__(self, environment: Mapping[str, str], preloaded: Sequence[str] = _PRELOADED) -> None:
        own = {name: value for name, value in environment.items() if name != "HPU_SIM_DEVICES"}
        with _socket_pair() as (self._socket, its):
            command = [sys.executable, "-m", __name__, str(its.fileno()), *preloaded]
            self._process = subprocess.Popen(
                command, env={**own, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, pass_fds=[its.fileno()]
            )
        atexit.register(self._close)

    def start(  # noqa: PLR0913 - the state of a process.
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: IO[Any],
        *,
        errors: IO[Any] | None = None,
        folder: Path | None = None,
        stdin: int | None = None,
        filters: Sequence[tuple[str, str, str]] = (),
    ) -> ForkedProcess:
        """Start a program in a session of its own.

        Args:
            arguments: What follows ``python``: a script, ``-m MODULE`` or ``-c TEXT``, and its arguments.
            environment: Environment variables.
            output: File for stdout, and for stderr without `errors`.
            errors: File for stderr.
            folder: Working directory; by default that of this process.
            stdin: Descriptor for stdin; by default the program has none.
            filters: Warning filters: action, pattern of the text, class.
        """
        request = {
            "adopted": False,
            "arguments": [*arguments],
            "environment": {**environment},
            "filters": [*filters],
            "folder": str(folder or Path.cwd()),
            "numbers": [0, 1, 2],
            "session": True,
        }
        with _socket_pair() as (status, its), Path(os.devnull).open("rb") as nothing:
            files = [nothing.fileno() if stdin is None else stdin, output.fileno(), (errors or output).fileno()]
            socket.send_fds(self._socket, [json.dumps(request).encode()], [its.fileno(), *files])
        return ForkedProcess(status)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@contextlib.contextmanager
def _socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the context of a socket that stays open, unless an error ends it, and one for another process."""
    with contextlib.ExitStack() as stack:
        own, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
        stack.enter_context(own)
        with its:
            yield own, its
        stack.pop_all()


@functools.cache
def shared_server(python_path: str) -> ForkServer:
    """Return the server of this process for all programs with a PYTHONPATH."""
    return ForkServer({**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"})


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request and its descriptors, in a process that is forked for it."""
    # Its children wait for the programs.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, _MAX_DESCRIPTORS)
        if not request:
            os._exit(0)
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            return json.loads(request), descriptors
        for descriptor in descriptors:
            os.close(descriptor)


def _fork(status: int, *, adopted: bool, session: bool) -> None:
    """Return in a process for the program; this one sends its status, or leaves it to the process that asked for it."""
    parent = os.getpid()
    if child := os.fork():
        if not adopted:
            os.write(status, b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    while adopted and os.getppid() == parent:
        time.sleep(0.001)
    if session:
        os.setsid()
    os.write(status, b"%d" % os.getpid())
    os.close(status)


def _prepare(request: dict[str, Any], descriptors: list[int]) -> None:
    """Give this process the state of one that starts with ``python``, apart from imported modules."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, descriptor in zip(request["numbers"], descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["filters"]:
        warnings.resetwarnings()
    for action, message, category in request["filters"]:
        warnings.filterwarnings(action, message, getattr(builtins, category))
    # In the order in which `import torch` has both. torch < 2.5 loads no device backends.
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0":
        getattr(importlib.import_module("torch"), "_import_device_backends", bool)()
    if "HPU_SIM_DEVICES" in os.environ:
        importlib.import_module("hpu_sim.process.startup").install()


def _above(descriptor: int) -> int:
    """Move a descriptor to a number that none of a request has."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_DESCRIPTOR)
    os.close(descriptor)
    return moved


def _start_forks(server: socket.socket) -> None:
    """Have a server start the Python scripts, and processes of the "spawn" method, that this process starts.

    Each is a child of this process, in its session and process group, with the state that `subprocess` would give it.
    """
    posix: Any = importlib.import_module("_posixsubprocess")
    start: Callable[..., int] = posix.fork_exec
    own = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONWARNINGS")}

    def fork_exec(*given: Any) -> int:
        # The arguments of all versions of Python begin alike.
        command, _, close, kept, folder, environment = given[:6]
        inputs, outputs, errors, failures = given[6], given[9], given[11], given[13]
        # A process group, a user, a function to call first.
        changed = [each for each in given[16:] if not (each is None or each == -1 or isinstance(each, bool))]
        arguments = [os.fsdecode(each) for each in command]
        variables = os.environ if environment is None else dict(os.fsdecode(each).split("=", 1) for each in environment)
        same = all(variables.get(name) == value for name, value in own.items())
        if changed or not (close and same and _is_program(arguments)):
            return start(*given)
        numbers = [*range(3), *(each for each in kept if each != failures)]
        files = [inherited if file == -1 else file for inherited, file in enumerate((inputs, outputs, errors))]
        request = {
            "adopted": True,
            "arguments": [each for each in arguments[1:] if each != "-u"],
            "environment": {**variables},
            "filters": [],
            "folder": str(Path.cwd() if folder is None else os.fsdecode(folder)),
            "numbers": numbers,
            "session": bool(given[15]),
        }
        process = ctypes.CDLL(None)
        with _socket_pair() as (status, its):
            # The process that forks it exits, and leaves it to this one.
            process.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(server, [json.dumps(request).encode()], [its.fileno(), *files, *numbers[3:]])
                its.close()
                pid = status.recv(16)
            except OSError:
                pid = b""
            process.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            status.close()
        return int(pid) if pid else start(*given)

    posix.fork_exec = fork_exec
    if hasattr(subprocess, "_fork_exec"):
        subprocess._fork_exec = fork_exec


def _is_program(command: list[str]) -> bool:
    """Return whether a command is a Python script under this Python, or a process of the "spawn" method."""
    if command[0] != sys.executable:
        return False
    script = next((each for each in command[1:] if each != "-u"), "-")
    return script.endswith(".py") or (script == "-c" and "multiprocessing.spawn" in command[2])


def _run(arguments: list[str]) -> None:
    """Run a script, a module or a text as ``__main__``."""
    if arguments[0] == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    if arguments[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *arguments[2:]]
        code = compile(arguments[1], "<string>", "exec")
    else:
        sys.path[0], sys.argv = str(Path(arguments[0]).parent), arguments
        main.__file__ = arguments[0]
        code = compile(Path(arguments[0]).read_bytes(), arguments[0], "exec")
    exec(code, vars(main))  # noqa: S102 - a test's own program.


def _serve() -> None:
    for name in sys.argv[2:]:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    connection = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, received = _receive(connection)
        status, *files = map(_above, received)
        _fork(status, adopted=request["adopted"], session=request["session"])
        # The program's own server is a fork of this process before the program changes it.
        own, its = (
            socket.socket(fileno=_above(each.detach())) for each in socket.socketpair(type=socket.SOCK_SEQPACKET)
        )
        if os.fork():
            its.close()
            break
        own.close()
        for file in files:
            os.close(file)
        connection = its
    _prepare(request, files)
    _start_forks(own)
    _run(request["arguments"])


if __name__ == "__main__":
    _serve()
