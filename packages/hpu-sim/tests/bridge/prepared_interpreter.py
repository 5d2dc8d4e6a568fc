"""An interpreter that has torch already and forks off a child for each program: no program waits for that import.

``python prepared_interpreter.py REQUESTS ANSWERS`` with the numbers of two file descriptors. A request is a line of
JSON; the answer to it is the exit code of the program.
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

# Seconds after which a program is ended.
_TIME_LIMIT: Final = 120


def main() -> dict[str, Any]:
    """Fork off children until there are no more requests.

    Returns:
        The request, in the child that has to serve it. The parent never returns.
    """
    importlib.import_module("torch")
    with os.fdopen(int(sys.argv[1])) as requests, os.fdopen(int(sys.argv[2]), "w") as answers:
        for line in requests:
            child = os.fork()
            if not child:
                return dict(json.loads(line))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answers.write(f"{code}\n")
            answers.flush()
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Make this process what ``python -c PROGRAM`` starts with, after an ``import torch``.

    Args:
        request: Arguments, environment, filters of warnings, and files for what is printed.
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
    """Run a program as ``__main__``, and let it see the device if the environment asks for one."""
    from hpu_sim.autoload import autoload

    autoload()
    sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), vars(sys.modules["__main__"]))  # noqa: S102 - a test's own text


if __name__ == "__main__":
    served = main()
    become(served)
    run(served["program"])
