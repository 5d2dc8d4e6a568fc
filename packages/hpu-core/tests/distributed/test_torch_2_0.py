"""Replacements for what torch 2.0 lacks, which run on every torch."""

import socket
from datetime import timedelta

import pytest

from hpu_core.distributed import _torch_2_0
from hpu_testing import free_port


def test_a_port_that_listens_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _torch_2_0.wait_for_listener("127.0.0.1", server.getsockname()[1], timedelta(0))


def test_a_port_where_nothing_listens_is_an_error() -> None:
    with pytest.raises(TimeoutError, match="nothing listens there"):
        _torch_2_0.wait_for_listener("127.0.0.1", free_port(), timedelta(0))


@pytest.mark.parametrize("backend", ["gloo", "nccl", "unregistered"])
def test_backends_for_other_devices_do_not_support_hpu(backend: str) -> None:
    assert not _torch_2_0.supports_hpu(backend)
