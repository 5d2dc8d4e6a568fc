"""Messages between two ranks: a TCP connection that carries one JSON object per line and never blocks.

The system notices a dead process, which closes its connections whatever it died of, and a machine out of reach, by
keep-alive packets. Neither needs a thread of the other process to run, nor Python's lock.
"""

import json
import selectors
import socket
import threading
from collections.abc import Mapping
from typing import Any

_CHUNK = 1 << 16

STRANGER = "is none of ours"
DIED = "has died"
UNREACHABLE = "cannot be reached any more"


class Line:
    """One end of a connection. Sending is safe from any thread.

    Args:
        connection: A connected TCP socket, which this object closes.
        unreachable: After how many seconds without an answer of the other machine the connection counts as lost.

    Attributes:
        lost: What became of the other end, once the connection is lost: DIED, UNREACHABLE or STRANGER.
    """

    def __init__(self, connection: socket.socket, unreachable: float) -> None:
        self.lost: str | None = None
        self._socket = connection
        self._received = b""
        self._lock = threading.Lock()
        connection.setblocking(False)
        _keep_alive(connection, unreachable)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, or drop it where the other end has not read anything for hours; sets `lost` as `receive`."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                sent = self._socket.send(data, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(error)
                return
        if sent < len(data):
            # The last bytes that the system's buffer held. What comes after them would make no sense.
            self._lose(TimeoutError())

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come; sets `lost` when the connection has ended."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            self._lose(error)
            return []
        if not data:
            self._lose(None)
        *lines, self._received = (self._received + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            messages = [None]
        if len(self._received) > _CHUNK or not all(isinstance(message, dict) for message in messages):
            # Anybody may connect, and none of ours sends that.
            self.lost = STRANGER
            return []
        return messages

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Return the messages that come within a time, or an empty list."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            return self.receive() if selector.select(seconds) else []

    def close(self) -> None:
        """End the connection; what was sent still arrives."""
        self._socket.close()

    def _lose(self, error: OSError | None) -> None:
        if self.lost is None:
            closed = error is None or isinstance(error, ConnectionError)
            self.lost = DIED if closed else UNREACHABLE


def _keep_alive(connection: socket.socket, unreachable: float) -> None:
    probe = max(1, int(unreachable / 3))
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
        # Decides also while something that was sent waits for its receipt, in which case there are no probes.
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unreachable * 1000)),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ):
        connection.setsockopt(level, option, value)
