"""Messages between two ranks, over a connection of this machine."""

import socket
from collections.abc import Iterator

import pytest

from hpu_ddp._watch._line import DIED, STRANGER, UNREACHABLE, Line


@pytest.fixture
def ends() -> Iterator[tuple[Line, Line]]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    lines = Line(client, 60), Line(accepted, 60)
    yield lines
    for line in lines:
        line.close()


@pytest.fixture
def stranger() -> Iterator[tuple[socket.socket, Line]]:
    """A socket of somebody else's, and the line that it is connected with."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    line = Line(accepted, 60)
    yield client, line
    client.close()
    line.close()


def test_messages_arrive(ends: tuple[Line, Line]) -> None:
    """In order, as they were sent."""
    near, far = ends
    near.send({"a": 1})
    near.send({"b": "ü\n"})

    received = far.wait(5)
    while len(received) < 2:
        received += far.wait(5)
    assert received == [{"a": 1}, {"b": "ü\n"}]


def test_nothing_to_receive_is_nothing(ends: tuple[Line, Line]) -> None:
    """Looking does not wait, and loses nothing."""
    near, _ = ends

    assert near.receive() == []
    assert near.lost is None


def test_a_message_may_come_in_parts(stranger: tuple[socket.socket, Line]) -> None:
    """What has come is kept until the rest does."""
    client, line = stranger
    client.send(b'{"a"')
    first = line.wait(5)
    client.send(b": 1}\n")

    assert (first, line.wait(5)) == ([], [{"a": 1}])


def test_a_closed_connection_is_a_death(ends: tuple[Line, Line]) -> None:
    """The system closes a process's connections, whatever it died of."""
    near, far = ends
    near.close()

    assert far.wait(5) == []
    assert far.lost == DIED


def test_what_was_sent_before_the_end_arrives(ends: tuple[Line, Line]) -> None:
    """A process that takes its leave is heard."""
    near, far = ends
    near.send({"left": 3})
    near.close()

    received = far.wait(5)
    while far.lost is None:
        received += far.wait(5)
    assert received == [{"left": 3}]


def test_a_connection_that_is_reset_is_a_death(stranger: tuple[socket.socket, Line]) -> None:
    """As it is where a process is killed that had something to read."""
    client, line = stranger
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()

    assert line.wait(5) == []
    assert line.lost == DIED


def test_a_timeout_is_no_death(ends: tuple[Line, Line]) -> None:
    """A machine that does not answer any more may live on."""
    near, _ = ends
    near._lose(TimeoutError(110, "Connection timed out"))

    assert near.lost == UNREACHABLE


def test_the_first_reason_counts(ends: tuple[Line, Line]) -> None:
    """What follows from a loss is no news."""
    near, _ = ends
    near._lose(TimeoutError(110, "Connection timed out"))
    near._lose(None)

    assert near.lost == UNREACHABLE


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"[1]\n", b"\xff\n", b"x" * (1 << 17)])
def test_strangers_are_not_listened_to(data: bytes, stranger: tuple[socket.socket, Line]) -> None:
    """Whoever sends what no rank sends is let go, and nothing of it is kept."""
    client, line = stranger
    client.sendall(data)

    received = line.wait(5)
    while line.lost is None:
        received += line.wait(5)
    assert (received, line.lost) == ([], STRANGER)


def test_sending_to_nobody_is_noticed(ends: tuple[Line, Line]) -> None:
    """Sending never raises, and the line knows that it is lost."""
    near, far = ends
    far.close()
    # The first one makes the other machine say that nobody is there.
    near.send({})
    near.wait(5)
    near.send({})

    assert near.lost == DIED


def test_sending_never_waits(ends: tuple[Line, Line]) -> None:
    """Where the other end does not read, what does not fit is dropped, and what was cut off ends the line."""
    near, _ = ends
    for _ in range(1000):
        near.send({"text": "x" * 50_000})

    assert near.lost in {None, UNREACHABLE}


def test_the_system_watches_the_connection(ends: tuple[Line, Line]) -> None:
    """It gives the other machine up after the time that it was told, also while nothing is sent."""
    near, _ = ends
    connection = near._socket

    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
    probes = [
        connection.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    ]
    assert probes == [20, 20, 2]
