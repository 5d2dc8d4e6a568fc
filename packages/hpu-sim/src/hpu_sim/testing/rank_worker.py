"""One rank: imports the functions that it is told and calls them, until its connection is closed.

`RankPool` starts it, `python -m hpu_sim.testing.rank_worker DESCRIPTOR`, with the variables that make it a rank.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from hpu_sim.activation import activate_from_environment

if TYPE_CHECKING:
    from hpu_sim.testing.rank_pool import FunctionRef


def serve(connection: Connection) -> None:
    """Answer each call, a function and its arguments, with what it returns or how it failed."""
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        connection.send(_call(function, arguments))


def _call(function: FunctionRef, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        if function.root not in sys.path:
            sys.path.insert(0, function.root)
        return True, getattr(importlib.import_module(function.module), function.name)(*arguments)
    except BaseException:  # noqa: BLE001 - SystemExit counts as well: the test shows it.
        return False, traceback.format_exc()


def main() -> None:
    """Be a rank of a simulated machine."""
    # Torch before 2.5 does not do it by itself.
    activate_from_environment()
    with Connection(int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
