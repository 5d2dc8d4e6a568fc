"""Fork server: Python programs that start with torch imported.

That import, with what Lightning imports of torch, takes most of the time of a short training. A program whose test is
not about imports starts as a fork of a server that has imported it without the simulator. The simulator starts in the
fork, as torch loads device backends there. Processes that the program starts are no forks.

``python -m hpu_testing.fork_server DESCRIPTOR`` is the server. It exits when its connection is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Imported ahead, where installed. No module of Lightning's: hpu-core registers with it on its import.
_PRELOADED = ("torch", "torch._dynamo", "torch.distributed.fsdp", "torchmetrics")
_MAX_REQUEST_BYTES = 1 << 17


class ForkedProcess:
    """A program that the server started, with what tests need of `subprocess.Popen`.

    Attributes:
        pid: Process id, which is also the session id.
    """

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self.pid = int(status.recv(16))

    def kill(self) -> None:
        """Kill the process, unless it has exited."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the process has exited, and return its exit code, negative for a signal."""
        return self._code

    @functools.cached_property
    def _code(self) -> int:
        with self._status:
            return int(self._status.recv(16))


class ForkServer:
    """Client of a fork server, which starts with the first program and exits with this process.

    Args:
        environment: Environment of the first program. All others must have the same PYTHONPATH.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        own = {name: value for name, value in environment.items() if name != "HPU_SIM_DEVICES"}
        with _socket_pair() as (self._socket, its):
            command = [sys.executable, "-m", __name__, str(its.fileno())]
            self._process = subprocess.Popen(
                command, env={**own, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, pass_fds=[its.fileno()]
            )
        atexit.register(self._close)

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: IO[Any],
        *,
        folder: Path | None = None,
        stdin: int | None = None,
    ) -> ForkedProcess:
        """Start a program in a session of its own.

        Args:
            arguments: What follows ``python`` on the command line: a script or ``-m MODULE``, and its arguments.
            environment: Environment variables.
            output: File for stdout and stderr.
            folder: Working directory; by default that of this process.
            stdin: Descriptor for stdin; by default the program has none.
        """
        request = {"arguments": [*arguments], "environment": {**environment}, "folder": str(folder or Path.cwd())}
        with _socket_pair() as (status, its):
            descriptors = [output.fileno(), its.fileno(), *([] if stdin is None else [stdin])]
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
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
        request, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 3)
        if not request:
            os._exit(0)
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return json.loads(request), descriptors
        for descriptor in descriptors:
            os.close(descriptor)


def _fork(status: int) -> None:
    """Return in a process for the program; this one sends its status."""
    if child := os.fork():
        os.write(status, b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    os.setsid()
    os.write(status, b"%d" % os.getpid())
    os.close(status)


def _prepare(request: dict[str, Any], output: int, stdin: int | None = None) -> None:
    """Give this process the state of one that starts with ``python``, apart from imported modules."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, output, output)):
        os.dup2(descriptor, number)
    # In the order in which `import torch` has both. torch < 2.5 loads no device backends.
    getattr(importlib.import_module("torch"), "_import_device_backends", bool)()
    if "HPU_SIM_DEVICES" in os.environ:
        importlib.import_module("hpu_sim.process.startup").install()


def _run(arguments: list[str]) -> None:
    """Run a script or a module as ``__main__``."""
    if arguments[0] == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(Path(arguments[0]).parent)
    sys.argv = arguments
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = arguments[0]
    exec(compile(Path(arguments[0]).read_bytes(), arguments[0], "exec"), vars(main))  # noqa: S102 - a test's own program.


def _serve() -> None:
    for name in _PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        request, (output, status, *stdin) = _receive(connection)
    _fork(status)
    _prepare(request, output, *stdin)
    _run(request["arguments"])


if __name__ == "__main__":
    _serve()
