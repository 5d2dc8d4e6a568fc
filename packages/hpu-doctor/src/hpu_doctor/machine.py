"""Facts of a machine: devices, software, processes, limits, folders and network. Collecting them opens no device."""

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hpu_core import launcher_env
from hpu_core.info import SystemInfo, collect
from hpu_doctor.holders import Holder, find_holders

# Below the home folder, where HABANA_LOGS is not set. Intel's images set it to /var/log/habana_logs.
DEFAULT_LOGS: Final = ".habana_logs"

_UP: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of rank 0.

    Attributes:
        name: Value of MASTER_ADDR, else what Lightning derives from the launcher's variables; None without either.
        resolved: Its IP address, None if it is not set or cannot be resolved.
        error: Why it cannot be resolved.
    """

    name: str | None = None
    resolved: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """State of a machine as one of its processes sees it.

    Attributes:
        host: Host name.
        boot_id: The kernel's random id of this boot, by which machines of one host name differ; "" if it is unknown.
        system: Devices and software.
        holders: Processes that hold a card.
        hidden: Number of processes of which that is unknown.
        locked_bytes: Limit of locked memory, None if there is none.
        logs: Folder of the vendor's logs.
        logs_error: Why it cannot be written to, None if it can.
        logs_variable: Value of HABANA_LOGS, None if it is not set.
        interface_names: Value of HCCL_SOCKET_IFNAME, None if it is not set.
        interfaces: Network interfaces of this machine, and whether each is up.
        address: Address of rank 0.
        rank: Rank of this process, None outside of a job.
        nodes: Number of machines of the job, None if the launcher does not set it.
    """

    host: str
    boot_id: str = ""
    system: SystemInfo
    holders: tuple[Holder, ...] = ()
    hidden: int = 0
    locked_bytes: int | None = None
    logs: str
    logs_error: str | None = None
    logs_variable: str | None = None
    interface_names: str | None = None
    interfaces: Mapping[str, bool] = field(default_factory=dict)
    address: Address = field(default_factory=Address)
    rank: int | None = None
    nodes: int | None = None


def collect_machine(
    environ: Mapping[str, str] = os.environ,
    *,
    collect_system: Callable[[], SystemInfo] = collect,
) -> Machine:
    """Collect the facts.

    Args:
        environ: Environment of the job.
        collect_system: Collects devices and software.
    """
    # First, because the import of the bridge sets MASTER_ADDR.
    address = find_address(environ)
    environ = dict(environ)
    system = collect_system()
    holders, hidden = find_holders()
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    logs = environ.get("HABANA_LOGS")
    folder = logs or str(Path(environ.get("HOME") or Path.home(), DEFAULT_LOGS))
    return Machine(
        host=socket.gethostname(),
        boot_id=read_boot_id(),
        holders=holders,
        hidden=hidden,
        locked_bytes=None if locked == resource.RLIM_INFINITY else locked,
        logs=folder,
        logs_error=folder_error(folder),
        logs_variable=logs,
        interface_names=environ.get("HCCL_SOCKET_IFNAME"),
        interfaces=read_interfaces(Path("/sys/class/net")),
        address=address,
        rank=launcher_env.global_rank(environ),
        nodes=launcher_env.num_nodes(environ),
        system=system,
    )


def folder_error(path: str) -> str | None:
    """Return why a folder, or the one in which it would be created, cannot be written to; None if it can."""
    existing = Path(path)
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is not a folder"
    # `os.access` knows read-only file systems, too.
    if not os.access(existing, os.W_OK | os.X_OK):
        return "it cannot be written to" if existing == Path(path) else f"{existing} cannot be written to"
    return None


def read_boot_id(proc: Path = Path("/proc")) -> str:
    """Return the kernel's random id of this boot, "" if it cannot be read. Containers of a machine share it."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""


def read_interfaces(net: Path) -> dict[str, bool]:
    """Return the network interfaces of a folder like /sys/class/net, and whether each is up."""
    try:
        names = sorted(entry.name for entry in net.iterdir())
    except OSError:
        return {}
    return {name: _is_up(net / name) for name in names}


def find_address(environ: Mapping[str, str]) -> Address:
    """Resolve the address of rank 0."""
    name = environ.get("MASTER_ADDR")
    # A job of several machines whose launcher does not name the first one.
    with contextlib.suppress(ValueError):
        if name is None and (job := launcher_env.find_launcher_env(environ)) is not None:
            name = job.address
    if name is None:
        return Address()
    try:
        target = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4]
    except (OSError, UnicodeError) as error:
        return Address(name=name, error=getattr(error, "strerror", None) or str(error))
    return Address(name=name, resolved=str(target[0]))


def _is_up(interface: Path) -> bool:
    try:
        return bool(int((interface / "flags").read_text(encoding="ascii"), 16) & _UP)
    except (OSError, ValueError):
        return False
