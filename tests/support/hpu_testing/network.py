"""Network namespaces that stand for machines, with cables that a test can slow down or cut."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

_IP = shutil.which("ip") or "ip"
_TC = shutil.which("tc") or "tc"
# Constants of linux/if_tun.h: frames of Ethernet, without a header of the driver's.
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_MAX_FRAME: Final = 65536


class Network:
    """Context manager of machines in a network of their own: network namespaces of this machine, joined by a bridge.

    They share everything else with this machine: files, host name and processes. Give each its own simulated devices
    by `machine_env`. Several networks can exist at the same time.

    Args:
        count: Number of machines, from 1 to 254.

    Raises:
        ValueError: `count` is out of its range.
        OSError: On entering the context, if `ip` of iproute2 is missing.
        PermissionError: On entering the context, if this process may not create network namespaces.
    """

    def __init__(self, count: int = 2) -> None:
        if not 1 <= count <= 254:
            raise ValueError(f"`count` must be from 1 to 254, got {count!r}")
        self._count = count
        # Names of links have at most 15 characters.
        base = f"{os.getpid():x}{id(self) >> 4 & 0xFFF:03x}"
        self._switch = f"hs{base}"
        self._names = [f"hpu-sim-{base}-{machine}" for machine in range(count)]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            # The ends of the cables go with the namespaces.
            _run(_IP, "netns", "add", self._switch)
            stack.callback(_run, _IP, "netns", "delete", self._switch)
            _run(_IP, "-n", self._switch, "link", "add", "switch", "type", "bridge")
            _run(_IP, "-n", self._switch, "link", "set", "switch", "up")
            for machine, name in enumerate(self._names):
                _run(_IP, "netns", "add", name)
                stack.callback(_run, _IP, "netns", "delete", name)
                stack.callback(self.kill, machine)
                _run(_IP, "-n", name, "link", "set", "lo", "up")
                near = f"port{machine}"
                _run(_IP, "-n", self._switch, "link", "add", near, "type", "veth", "peer", "eth0", "netns", name)
                _run(_IP, "-n", self._switch, "link", "set", near, "up", "master", "switch")
                _run(_IP, "-n", name, "address", "add", f"{self.address(machine)}/24", "dev", "eth0")
                _run(_IP, "-n", name, "link", "set", "eth0", "up")
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def address(self, machine: int) -> str:
        """Return the address of a machine, whose interface is eth0.

        Args:
            machine: Number of the machine, from 0.
        """
        return f"10.77.0.{machine + 1}"

    def command(self, machine: int, command: Iterable[str]) -> list[str]:
        """Return the command line that runs a command on a machine.

        Args:
            machine: Number of the machine.
            command: Command line.
        """
        return [_IP, "netns", "exec", self._names[machine], *command]

    def cut_command(self, machine: int) -> list[str]:
        """Return the command line with which a process of a machine cuts its own cable.

        Args:
            machine: Number of the machine.
        """
        # At the switch: the machine itself sees no error.
        return [_IP, "-n", self._switch, "link", "set", f"port{machine}", "down"]

    def cut(self, machine: int) -> None:
        """Cut the cable of a machine: packets are lost, and nobody is told.

        Args:
            machine: Number of the machine.
        """
        _run(*self.cut_command(machine))

    def slow_down_command(self, machine: int, kilobits_per_second: int) -> list[str]:
        """Return the command line with which a process of a machine limits what the machine can send.

        Args:
            machine: Number of the machine.
            kilobits_per_second: Bandwidth of its cable.
        """
        limit = ["tbf", "rate", f"{kilobits_per_second}kbit", "burst", "32kbit", "latency", "1s"]
        return [_TC, "-n", self._names[machine], "qdisc", "replace", "dev", "eth0", "root", *limit]

    def slow_down(self, machine: int, kilobits_per_second: int) -> None:
        """Limit what a machine can send.

        Args:
            machine: Number of the machine.
            kilobits_per_second: Bandwidth of its cable.
        """
        _run(*self.slow_down_command(machine, kilobits_per_second))

    def enter(self, machine: int) -> None:
        """Move the calling thread to a machine; what it starts is there as well.

        Args:
            machine: Number of the machine.
        """
        _enter(self._names[machine])

    def disturb(self, machine: int, delay: float, loss: float) -> None:
        """Delay what passes the cable of a machine, and lose a part of it, until the network is closed.

        A process copies the frames. `tc netem` does the same where the kernel has it.

        Args:
            machine: Number of the machine.
            delay: Seconds in each direction.
            loss: Share of the frames that are lost, from 0 to 1.
        """
        name, port = self._names[machine], f"port{machine}"
        _run(_IP, "-n", self._switch, "link", "delete", port)
        ends = [_open_tap(self._switch, port), _open_tap(name, "eth0")]
        _run(_IP, "-n", self._switch, "link", "set", port, "up", "master", "switch")
        _run(_IP, "-n", name, "address", "add", f"{self.address(machine)}/24", "dev", "eth0")
        _run(_IP, "-n", name, "link", "set", "eth0", "up")
        command = [sys.executable, __file__, *map(str, (*ends, delay, loss))]
        process = subprocess.Popen(command, pass_fds=ends)
        for end in ends:
            os.close(end)
        self._exit_stack.callback(process.wait)
        self._exit_stack.callback(process.kill)

    def connect(self) -> None:
        """Restore all cables, and their bandwidth."""
        for machine, name in enumerate(self._names):
            _run(_TC, "-n", name, "qdisc", "replace", "dev", "eth0", "root", "noqueue")
            _run(_IP, "-n", self._switch, "link", "set", f"port{machine}", "up")
            # Else the machines remember for a while that the others were out of reach.
            _run(_IP, "-n", name, "neighbour", "flush", "dev", "eth0")

    def kill(self, machine: int) -> None:
        """Kill all processes of a machine, as a loss of power does.

        Args:
            machine: Number of the machine.
        """
        for pid in _run(_IP, "netns", "pids", self._names[machine]).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        kind = PermissionError if "not permitted" in done.stderr.lower() else OSError
        raise kind(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def _enter(name: str) -> None:
    """Move the calling thread to a network namespace."""
    with Path("/run/netns", name).open(encoding="ascii") as namespace:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


def _open_tap(namespace: str, name: str) -> int:
    """Create the interface of a cable's end in a network namespace, and return its descriptor."""
    with Path("/proc/thread-self/ns/net").open(encoding="ascii") as own:
        _enter(namespace)
        try:
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        finally:
            ctypes.CDLL(None).setns(own.fileno(), 0)
    return end


def _copy_frames(ends: list[int], delay: float, loss: float) -> None:
    """Copy frames between two ends forever."""
    waiting: list[tuple[float, int, int, bytes]] = []
    order = itertools.count()
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, [], [], pause)[0]:
            with contextlib.suppress(BlockingIOError):
                while frame := os.read(end, _MAX_FRAME):
                    if random.random() >= loss:  # noqa: S311 - no secret.
                        other = ends[1 - ends.index(end)]
                        heapq.heappush(waiting, (time.monotonic() + delay, next(order), other, frame))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            # A full queue loses the frame, as a switch does.
            with contextlib.suppress(BlockingIOError):
                os.write(waiting[0][2], waiting[0][3])
            heapq.heappop(waiting)


def can_create_networks() -> bool:
    """Return whether this process may create network namespaces, and `ip` of iproute2 is installed."""
    try:
        with Network(1):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    _copy_frames([*map(int, sys.argv[1:3])], *map(float, sys.argv[3:]))
