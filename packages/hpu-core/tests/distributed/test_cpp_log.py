"""Warnings of torch's C++ log, and the trace that its store prints of a request that fails."""

import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from hpu_core.distributed import cpp_log
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


def test_torch_keeps_the_level_of_its_log() -> None:
    level = cpp_log._level()

    assert level is not None
    assert 0 <= level.value <= 4


def test_the_level_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    level = cpp_log._level()
    assert level is not None
    monkeypatch.setattr(level, "value", 1)
    with pytest.raises(KeyError), cpp_log.without_warnings():
        raise KeyError

    assert level.value == 1


def test_a_level_that_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    level = cpp_log._level()
    assert level is not None
    monkeypatch.setattr(level, "value", 0)
    with cpp_log.without_warnings():
        assert level.value == 0


def test_a_request_to_a_store_that_closes_prints_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", _KEEP_STORE, str(port)]):
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=60))
        capfd.readouterr()
        store.set("connected", "")
        with pytest.raises(RuntimeError), cpp_log.without_warnings():
            store.get("never set")

    assert capfd.readouterr().err == ""
