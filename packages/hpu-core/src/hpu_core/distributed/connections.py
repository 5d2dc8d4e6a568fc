"""Connections to the store, from the kernel's table: the kernel closes a process's sockets however it dies."""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["own_endpoints", "peer_endpoints", "shut_down"]

_ESTABLISHED: Final = "01"


def own_endpoints(port: int) -> tuple[str, ...]:
    """Return the local endpoints, "address:port", of this process's connections to a port; empty if unreadable."""
    inodes = set()
    for entry in Path("/proc/self/fd").glob("*"):
        # Other threads close descriptors meanwhile.
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return tuple(sorted(local for local, remote, inode in _connections() if inode in inodes and _port(remote) == port))


def peer_endpoints(port: int) -> set[str]:
    """Return the remote endpoints of this host's connections to a local port; empty if unreadable."""
    return {remote for local, remote, _ in _connections() if _port(local) == port}


def shut_down(port: int) -> None:
    """Shut down this process's connections to a port: what waits there for an answer gets an error.

    Args:
        port: The remote port.
    """
    for entry in Path("/proc/self/fd").glob("*"):
        # Other threads close descriptors meanwhile.
        with contextlib.suppress(OSError):
            if entry.readlink().name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                    # A Unix socket has no port.
                    if connection.getpeername()[1:2] == (port,):
                        connection.shutdown(socket.SHUT_RDWR)


def _connections() -> Iterator[tuple[str, str, str]]:
    """Yield local endpoint, remote endpoint and inode of each established TCP connection of this network namespace."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _ESTABLISHED:
                yield _endpoint(fields[1]), _endpoint(fields[2]), fields[9]


def _endpoint(text: str) -> str:
    """Return an endpoint of proc(5), with words of the address in host byte order, as "address:port"."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8)]
    parsed = ipaddress.ip_address(b"".join(words))
    return f"{getattr(parsed, 'ipv4_mapped', None) or parsed}:{int(port, 16)}"


def _port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])
