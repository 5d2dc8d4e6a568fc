"""Fork server: Python programs that start with torch imported.

That import, with what Lightning imports of torch, takes most of the time of a short training. A program whose test is
not about imports starts as a fork of a server that has imported it, and has loaded the simulator's library of kernels.
The simulator starts in the fork, as torch loads device backends there. Python programs that the program starts are
forks too, by a server of its own.

``python -m hpu_testing.fork_server DESCRIPTOR MODULE ...`` is the server. It exits when its connection is closed.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import fcntl
import functools
import gc
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
import weakref
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from hpu_testing.forks import Forks, socket_pair
from hpu_testing.leftovers import shared_children
from hpu_testing.limits import allow_for_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PRELOADED = [
    *("torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp"),
    *("torch.distributed.tensor.parallel", "torchmetrics", "fsspec", "pydantic", "rich.progress", "hpu_testing.device"),
]
"""Modules that the shared server imports.

Suites that do not test how hpu-core registers on Lightning's import may add Lightning before the server starts.
"""
PRELOAD = "HPU_TESTING_PRELOAD"
"""Environment variable of a server with a machine: what it imports besides, where installed, with commas."""
TEARDOWN = "HPU_TESTING_TEARDOWN"
"""Environment variable of a program that is torn down as one that ``python`` starts, after its exit handlers."""
# Large pages: a fork copies the table of pages, which takes half of its time otherwise.
_LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}
_MAX_REQUEST_BYTES = 1 << 17
_MAX_DESCRIPTORS = 32
# Above all descriptors that a process has when it receives those of a request.
_FIRST_FREE_DESCRIPTOR = 200


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
        environment: Environment of the server.
        preloaded: Modules to import ahead, where installed.
    """

    def __init__(self, environment: Mapping[str, str], preloaded: Sequence[str] = PRELOADED) -> None:
        own = {name: value for name, value in environment.items() if name != "HPU_SIM_DEVICES"}
        self._environment = {**own, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        self._preloaded = preloaded

    @functools.cached_property
    def connection(self) -> socket.socket:
        """Connection to the server, which is started for it."""
        with socket_pair() as (connection, its):
            command = [sys.executable, "-m", __name__, str(its.fileno()), *self._preloaded]
            process = subprocess.Popen(command, env={**self._environment, **_LARGE_PAGES}, pass_fds=[its.fileno()])
        shared_children.add(process.pid)
        atexit.register(_close, connection, process)
        return connection

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
            arguments: What follows ``python``: a script, ``-m MODULE`` or ``-c TEXT``, and its arguments. Without any,
                a server starts, whose connection is `stdin`.
            environment: Environment variables.
            output: File for stdout, and for stderr without `errors`.
            errors: File for stderr.
            folder: Working directory; by default that of this process.
            stdin: Descriptor for stdin; by default the program has none.
            filters: Warning filters: action, pattern of the text, class.
        """
        allow_for_program()
        request = {
            "adopted": False,
            "arguments": [*arguments],
            "environment": {**environment},
            "filters": [*filters],
            "folder": str(folder or Path.cwd()),
            "numbers": [0, 1, 2],
            "session": True,
        }
        with socket_pair() as (status, its), Path(os.devnull).open("rb") as nothing:
            files = [nothing.fileno() if stdin is None else stdin, output.fileno(), (errors or output).fileno()]
            socket.send_fds(self.connection, [json.dumps(request).encode()], [its.fileno(), *files])
        return ForkedProcess(status)

    def forks(self) -> Forks:
        """Return a context in which Python programs that this process starts are forks."""
        return Forks(lambda: self.connection)

    def with_machine(
        self, environment: Mapping[str, str], *, filters: Sequence[tuple[str, str, str]] = ()
    ) -> ForkServer:
        """Return a server whose programs start on the simulated machine of an environment, without a device.

        The environment of a program adds to that of the server. Programs that it starts are no forks.
        """
        server = ForkServer(environment)
        with socket_pair() as (server.connection, its), Path(os.devnull).open("w") as nothing:
            process = self.start([], environment, nothing, errors=sys.__stderr__, stdin=its.fileno(), filters=filters)
        shared_children.add(process.pid)
        atexit.register(_close, server.connection, process)
        return server


def _close(connection: socket.socket, process: subprocess.Popen[bytes] | ForkedProcess) -> None:
    connection.close()
    process.wait()


@functools.cache
def shared_server() -> ForkServer:
    """Return the server of this process."""
    path = os.pathsep.join(filter(None, sys.path))
    return ForkServer({**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})


def forks() -> Forks:
    """Return a context in which Python programs that this process starts are forks."""
    return shared_server().forks()


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


def _prepare(request: dict[str, Any], descriptors: list[int], path: list[str] | None) -> None:
    """Give this process the state of one that starts with ``python``, apart from imported modules.

    Args:
        request: Request.
        descriptors: Open files.
        path: What follows PYTHONPATH in `sys.path`; None for a process that has its machine.
    """
    if path is not None:
        os.environ.clear()
    os.environ.update(request["environment"])
    if path is not None:
        sys.path[1:] = dict.fromkeys([*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path])
    os.chdir(request["folder"])
    for number, descriptor in zip(request["numbers"], descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["filters"]:
        warnings.resetwarnings()
    for action, message, category in request["filters"]:
        warnings.filterwarnings(action, message, getattr(builtins, category))
    if path is None:
        return
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


def _exit_at_once(codes: list[int]) -> None:
    """Exit with the code of a program, without the time that Python takes to free everything that is imported."""
    if codes and TEARDOWN not in os.environ:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        ctypes.CDLL(None).fflush(None)
        os._exit(codes[0])


def _fork_programs(server: socket.socket) -> None:
    """Have the Python programs that this process starts be forks of a server."""
    Forks(lambda: server).__enter__()


def _import_installed(names: Sequence[str]) -> None:
    for name in filter(None, names):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)


def _leave_out_finalizers() -> list[Any]:
    """Let a program end without the finalizers of torch's libraries, which take half of the time of a short one."""
    registered: Any = weakref.finalize
    finalizers = [each for each in registered._registry if each.atexit]
    for each in finalizers:
        each.atexit = False
    return finalizers


def _serve() -> None:
    codes: list[int] = []
    # First of all, because the handler that is registered first runs last, after Python has joined all threads.
    atexit.register(_exit_at_once, codes)
    _import_installed(sys.argv[2:])
    finalizers = _leave_out_finalizers()
    # A collection in a fork would copy the pages of all these objects.
    gc.freeze()
    # The path without PYTHONPATH.
    command = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path: list[str] | None = json.loads(subprocess.check_output(command, env=bare))
    connection = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, received = _receive(connection)
        status, *files = map(_above, received)
        _fork(status, adopted=request["adopted"], session=request["session"])
        if path is None:
            _prepare(request, files, None)
            break
        if not request["arguments"]:
            _prepare(request, files, path)
            _import_installed(os.environ.get(PRELOAD, "").split(","))
            finalizers += _leave_out_finalizers()
            connection, path = socket.socket(fileno=_above(os.dup(0))), None
            continue
        # The program's own server is a fork of this process before the program changes it.
        own, its = (
            socket.socket(fileno=_above(each.detach())) for each in socket.socketpair(type=socket.SOCK_SEQPACKET)
        )
        if os.fork():
            its.close()
            _prepare(request, files, path)
            _fork_programs(own)
            break
        own.close()
        for file in files:
            os.close(file)
        connection = its
    for finalizer in finalizers:
        finalizer.atexit = TEARDOWN in os.environ
    try:
        _run(request["arguments"])
    except SystemExit as error:
        # Python prints another object.
        if error.code is None or isinstance(error.code, int):
            codes.append(error.code or 0)
        raise
    except Exception:
        codes.append(1)
        raise
    codes.append(0)


if __name__ == "__main__":
    _serve()
