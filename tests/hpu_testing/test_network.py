"""Tests of machines in a network of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from hpu_testing import Network
from hpu_testing.network import can_create_networks

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_networks = pytest.mark.skipif(not can_create_networks(), reason="Requires: network namespaces (root, iproute2)")

_SIZE = 100_000
_SERVER = """
import socket
server = socket.create_server(("", 5000))
print("listening", flush=True)
while True:
    client, _ = server.accept()
    try:
        client.sendall(bytes(int(client.recv(16))))
    except OSError:
        pass
    client.close()
"""
# Prints how many of the wanted bytes it receives in two seconds.
_CLIENT = """
import socket, sys, time
deadline = time.monotonic() + 2
received = 0
try:
    client = socket.create_connection((sys.argv[1], 5000), timeout=2)
    client.sendall(sys.argv[2].encode())
    while part := client.recv(65536):
        received += len(part)
        client.settimeout(max(0.001, deadline - time.monotonic()))
    print(received)
except TimeoutError:
    print(received or "timeout")
except OSError as error:
    print(type(error).__name__)
"""


def _python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def _ask(network: Network) -> str:
    """Return what machine 1 receives from the server of machine 0: a number of bytes, or an error."""
    command = network.command(1, _python(_CLIENT, network.address(0), str(_SIZE)))
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _namespaces() -> str:
    return subprocess.check_output(["ip", "netns", "list"], text=True)  # noqa: S607 - iproute2


@pytest.fixture
def network() -> Iterator[Network]:
    """Return two machines; machine 0 has a server."""
    with Network() as network:
        server = subprocess.Popen(network.command(0, _python(_SERVER)), stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        yield network
    server.stdout.close()
    server.wait()


@needs_networks
def test_machines_reach_each_other(network: Network) -> None:
    assert _ask(network) == str(_SIZE)


@needs_networks
def test_nothing_passes_a_cable_that_is_cut(network: Network) -> None:
    network.cut(1)

    assert _ask(network) == "timeout"

    network.connect()

    assert _ask(network) == str(_SIZE)


@needs_networks
def test_nothing_is_left_of_a_killed_machine(network: Network) -> None:
    network.kill(0)

    assert _ask(network) == "ConnectionRefusedError"


@needs_networks
def test_slow_cable_takes_its_time(network: Network) -> None:
    network.slow_down(0, 64)

    assert 0 < int(_ask(network)) < _SIZE

    network.connect()

    assert _ask(network) == str(_SIZE)


@needs_networks
@pytest.mark.parametrize(("loss", "received"), [(0.0, str(_SIZE)), (1.0, "timeout")])
def test_disturbed_cable_delivers_what_it_does_not_lose(loss: float, received: str, network: Network) -> None:
    network.disturb(1, 0.01, loss)

    assert _ask(network) == received


@needs_networks
def test_thread_that_enters_a_machine_is_there(network: Network) -> None:
    def connect() -> None:
        network.enter(1)
        socket.create_connection((network.address(0), 5000), timeout=60).close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(connect).result()


@needs_networks
def test_namespaces_are_removed() -> None:
    with Network(3) as network:
        names = {network.command(machine, [])[3] for machine in range(3)}
        before = _namespaces()
    after = _namespaces()

    assert all(name in before and name not in after for name in names)


@pytest.mark.parametrize("count", [0, 255])
def test_number_of_machines_has_a_range(count: int) -> None:
    with pytest.raises(ValueError, match=f"`count` must be from 1 to 254, got {count}"):
        Network(count)
