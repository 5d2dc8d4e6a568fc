"""Connections that the kernel lists."""

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hpu_core.distributed import connections


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A listener; the IPv6 one takes connections of both kinds, as torch's store does."""
    dual = request.param == socket.AF_INET6
    with socket.create_server(("", 0), family=request.param, dualstack_ipv6=dual) as server:
        yield server


def test_both_ends_name_a_connection_alike(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        with accepted:
            own = f"127.0.0.1:{client.getsockname()[1]}"

            assert list(connections.own_connections(port)) == [own]
            assert connections.peer_endpoints(port) == {own}


def test_a_closed_connection_is_gone(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.shutdown(socket.SHUT_RDWR)
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(1) == b""

            assert connections.own_connections(port) == {}
            assert connections.peer_endpoints(port) == set()


def test_connections_of_other_processes_are_not_own(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        pid = os.fork()
        if pid == 0:
            # The child inherits the connection; a descriptor that it opens itself is what counts.
            os._exit(0 if connections.own_connections(port) else 1)

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_default_timeout_of_the_program_leaves_connections_as_they_are(
    server: socket.socket,
) -> None:
    """A socket with a timeout does not block, which torch's client expects."""
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(1)
        try:
            connections.own_connections(port)
        finally:
            socket.setdefaulttimeout(before)

        assert os.get_blocking(client.fileno())


def test_a_client_that_waits_for_an_answer_gets_an_error(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client, ThreadPoolExecutor() as pool:
        answer = pool.submit(client.recv, 1)

        connections.shut_down(port)

        assert answer.result(60) == b""


def test_connections_to_other_ports_stay(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        with accepted:
            connections.shut_down(client.getsockname()[1] + 1)
            client.send(b"x")

            assert accepted.recv(1) == b"x"
