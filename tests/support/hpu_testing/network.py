"""Network namespaces that stand for machines, with cables that a test can cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

_IP = shutil.which("ip") or "ip"


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

    def connect(self) -> None:
        """Restore all cables."""
        for machine, name in enumerate(self._names):
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


def can_create_networks() -> bool:
    """Return whether this process may create network namespaces, and `ip` of iproute2 is installed."""
    try:
        with Network(1):
            return True
    except OSError:
        return False
