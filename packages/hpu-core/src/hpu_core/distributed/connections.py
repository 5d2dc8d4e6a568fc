"""Connections to the store: the kernel closes a process's sockets however it dies."""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# State of a connection, of the kernel's tcp_states.h.
_ESTABLISHED: Final = 1


def own_connections(port: int) -> dict[str, int]:
    """Return the descriptors of this process's connections to a port, by local endpoint; empty if unreadable."""
    descriptors = {}
    for entry in Path("/proc/self/fd").glob("*"):
        # No socket of TCP, no connection, or closed by another thread meanwhile.
        with contextlib.suppress(OSError), _borrow(int(entry.name)) as connection:
            state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if state == _ESTABLISHED and connection.getpeername()[1] == port:
                host, local_port = connection.getsockname()[:2]
                descriptors[_endpoint(ipaddress.ip_address(host.partition("%")[0]), local_port)] = int(entry.name)
    return descriptors


def peer_endpoints(port: int) -> set[str]:
    """Return the remote endpoints of this host's connections to a local port; empty if unreadable.

    torchrun's agent, another process, may keep the store. The kernel searches all of its table, which takes 10 ms.
    """
    endpoints = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, remote, state, *_ = line.split()
                if int(state, 16) == _ESTABLISHED and _parse(local)[1] == port:
                    endpoints.add(_endpoint(*_parse(remote)))
    return endpoints


def shut_down(port: int) -> None:
    """Shut down this process's connections to a port: what waits there for an answer gets an error."""
    for descriptor in own_connections(port).values():
        # Closed by another thread meanwhile.
        with contextlib.suppress(OSError), _borrow(descriptor) as connection:
            connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _borrow(descriptor: int) -> Iterator[socket.socket]:
    """Return the context of a socket that stays open; raise an OSError if the descriptor has none."""
    # Without SOCK_NONBLOCK, Python would give torch's socket the program's default timeout, and it would not block.
    connection = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK, fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()


def _parse(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Return address and port of an endpoint of proc(5), which has the words of the address in host byte order."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8)]
    return ipaddress.ip_address(b"".join(words)), int(port, 16)


def _endpoint(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Return "address:port"; torch's store listens for IPv4 on an IPv6 socket."""
    return f"{getattr(address, 'ipv4_mapped', None) or address}:{port}"
