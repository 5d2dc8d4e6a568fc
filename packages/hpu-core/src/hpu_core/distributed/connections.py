"""Connections to the store, from the kernel's table: the kernel closes a process's sockets however it dies."""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["own_connections", "peer_endpoints", "shut_down"]

_ESTABLISHED: Final = "01"


def own_connections(port: int) -> dict[str, int]:
    """Return the descriptors of this process's connections to a port, by local endpoint; empty if unreadable."""
    descriptors = {}
    for entry in Path("/proc/self/fd").glob("*"):
        # Other threads close descriptors meanwhile.
        with contextlib.suppress(OSError):
            descriptors[str(entry.readlink()).removeprefix("socket:[").removesuffix("]")] = int(entry.name)
    ends = ((fields[1], fields[9]) for fields in _connections() if _has_port(fields[2], port))
    return {_endpoint(local): descriptors[inode] for local, inode in ends if inode in descriptors}


def peer_endpoints(port: int) -> set[str]:
    """Return the remote endpoints of this host's connections to a local port; empty if unreadable."""
    return {_endpoint(fields[2]) for fields in _connections() if _has_port(fields[1], port)}


def shut_down(port: int) -> None:
    """Shut down this process's connections to a port: what waits there for an answer gets an error.

    Args:
        port: The remote port.
    """
    for descriptor in own_connections(port).values():
        # Other threads close descriptors meanwhile.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _connections() -> Iterator[list[str]]:
    """Yield the fields of each established TCP connection of this namespace: 1 and 2 are its ends, 9 is its inode."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _ESTABLISHED:
                yield fields


def _endpoint(text: str) -> str:
    """Return an endpoint of proc(5), with words of the address in host byte order, as "address:port"."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8)]
    parsed = ipaddress.ip_address(b"".join(words))
    return f"{getattr(parsed, 'ipv4_mapped', None) or parsed}:{int(port, 16)}"


def _has_port(text: str, port: int) -> bool:
    return int(text.rpartition(":")[2], 16) == port
