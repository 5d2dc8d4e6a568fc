"""Fork server: it imports torch once and forks a child for each program, which need not wait for that import.

``python fork_server.py REQUESTS RESPONSES`` takes the numbers of two file descriptors. A request is a line of JSON, and
its response is the exit code of the program.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import signal
import sys
import warnings
from types import ModuleType
from typing import Any, Final

# Seconds after which a program is killed.
_TIME_LIMIT: Final = 120


def main() -> dict[str, Any]:
    """Serve requests until the pipe is closed.

    Returns:
        The request, in the child that serves it. The server itself exits.
    """
    importlib.import_module("torch")
    with os.fdopen(int(sys.argv[1])) as requests, os.fdopen(int(sys.argv[2]), "w") as responses:
        for line in requests:
            child = os.fork()
            if not child:
                return dict(json.loads(line))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            responses.write(f"{code}\n")
            responses.flush()
    os._exit(0)


def prepare(request: dict[str, Any]) -> None:
    """Give this process the initial state of ``python -c PROGRAM``, apart from imported modules.

    Args:
        request: Arguments, environment, warning filters, and files for stdout and stderr.
    """
    signal.alarm(_TIME_LIMIT)
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, (path, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (request["stdout"], os.O_WRONLY), (request["stderr"], os.O_WRONLY)]
    ):
        os.dup2(os.open(path, flags), number)
    sys.argv = ["-c", *request["arguments"]]
    warnings.resetwarnings()
    for action, message, category in request["filters"]:
        warnings.filterwarnings(action, message, getattr(builtins, category))


def run(program: str) -> None:
    """Run a program as ``__main__``, with the simulator active if the environment asks for it."""
    from hpu_sim.process.autoload import autoload

    autoload()
    sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), vars(sys.modules["__main__"]))  # noqa: S102 - a test's own text


if __name__ == "__main__":
    main_request = main()
    prepare(main_request)
    run(main_request["program"])
