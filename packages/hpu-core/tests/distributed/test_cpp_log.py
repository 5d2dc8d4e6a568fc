"""Level of torch's C++ log, and the trace that its store prints of a request that fails."""

import ctypes
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from hpu_core.distributed import cpp_log
from hpu_core.distributed.failure_detection import RankFailedError
from hpu_core.distributed.store import RendezvousConfig, open_store
from hpu_testing import free_port

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore
else:
    from torch.distributed import TCPStore


# Keeps a store until a client has set a key, and ends without closing it.
_KEEP_STORE = """
import os, sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
store.get("connected")
os._exit(0)
"""


@pytest.fixture
def level() -> ctypes.c_int:
    """Torch's level."""
    level = cpp_log._level()
    assert level is not None
    assert level.value == 1
    return level


def test_the_level_is_restored(level: ctypes.c_int) -> None:
    with pytest.raises(KeyError), cpp_log.silence(), cpp_log.silence():
        raise KeyError

    assert level.value == 1


def test_the_last_of_several_threads_restores_the_level(level: ctypes.c_int) -> None:
    first, second = cpp_log.silence(), cpp_log.silence()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)

    assert level.value == 3

    second.__exit__(None, None, None)

    assert level.value == 1


def test_a_level_that_the_user_has_set_stays(level: ctypes.c_int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level, "value", 0)

    assert cpp_log._level.__wrapped__() is None


def test_a_request_to_a_store_that_closes_prints_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", _KEEP_STORE, str(port)]):
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=60))
        capfd.readouterr()
        store.set("connected", "")
        with pytest.raises(RuntimeError), cpp_log.silence():
            store.get("never set")

    assert capfd.readouterr().err == ""


def test_a_connection_that_fails_prints_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    config = RendezvousConfig("127.0.0.1", free_port(), 1, 2, timedelta(seconds=2))
    with pytest.raises(RankFailedError, match="found no rank 0"):
        open_store(config, server=False)

    assert capfd.readouterr().err == ""
