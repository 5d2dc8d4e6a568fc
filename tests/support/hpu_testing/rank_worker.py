"""Worker process of one rank: ``python -m hpu_testing.rank_worker``.

`RankPool` starts it with the environment variables of a rank and a connection as stdin. It calls functions until that
is closed.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from hpu_sim.process.activation import activate_from_environment

if TYPE_CHECKING:
    from hpu_testing.rank_pool import FunctionRef


def serve(connection: Connection) -> None:
    """Receive calls, and send the result or the traceback of each.

    Args:
        connection: Connection to the pool.
    """
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
        module = importlib.import_module(function.module)
        # Lightning and DeepSpeed collect garbage in every training, and would traverse all modules for it.
        gc.freeze()
        return True, getattr(module, function.name)(*arguments)
    except BaseException:  # noqa: BLE001 - the test shows SystemExit, too
        return False, traceback.format_exc()
    finally:
        # A strategy that is left open ends its training now, before another rank begins the next one.
        gc.collect()


def main() -> None:
    """Activate the simulator and serve calls."""
    # torch < 2.5 does not activate it on import.
    activate_from_environment()
    with Connection(sys.stdin.fileno()) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
