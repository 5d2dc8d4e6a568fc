"""Facts of a machine: devices, software, processes, limits, folders and network. Collecting them opens no device."""

import contextlib
import errno
import os
import resource
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from hpu_core import launcher_env
from hpu_core.info import SystemInfo, collect
from hpu_doctor.holders import Holder, find_holders

# Below the home folder, where HABANA_LOGS is not set. Intel's images set it to /var/log/habana_logs.
DEFAULT_LOGS: Final = ".habana_logs"

PortState = Literal["free", "in use", "reachable", "refused", "timeout", "unknown"]

_CONNECT_SECONDS: Final = 3.0
_UP: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HugePages:
    """Huge pages of the default size.

    Attributes:
        total: Number of reserved pages.
        free: Number of free ones.
        size_kib: Size of a page in KiB.
    """

    total: int
    free: int
    size_kib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder that training writes to.

    Attributes:
        path: Its path.
        error: Why it cannot be written to, None if it can.
    """

    path: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """MASTER_ADDR and MASTER_PORT.

    Attributes:
        address: Value of MASTER_ADDR, else what Lightning derives from the launcher's variables; None without either.
        port: Value of MASTER_PORT, likewise.
        resolved: IP address of the address, None if it is not set or cannot be resolved.
        error: Why it cannot be resolved.
        is_here: Whether it is an address of this machine.
        state: State of the port: "free" or "in use" on this machine, or the result of a connection to another one.
    """

    address: str | None = None
    port: str | None = None
    resolved: str | None = None
    error: str | None = None
    is_here: bool = False
    state: PortState = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """State of a machine as one of its processes sees it.

    Attributes:
        host: Host name.
        boot_id: The kernel's random id of this boot, by which machines of one host name differ; "" if it is unknown.
        system: Devices and software.
        holders: Processes that hold a card.
        hidden: Number of processes of which that is unknown.
        huge_pages: Huge pages, None if the kernel does not report them.
        open_files: Soft and hard limit of open files.
        locked_bytes: Limit of locked memory, None if there is none.
        logs: Folder of the vendor's logs.
        logs_variable: Value of HABANA_LOGS, None if it is not set.
        recipe_cache: Folder of PT_HPU_RECIPE_CACHE_CONFIG, None if it is not set.
        recipe_cache_config: Value of that variable.
        interface_names: Value of HCCL_SOCKET_IFNAME, None if it is not set.
        interfaces: Network interfaces of this machine, and whether each is up.
        endpoint: MASTER_ADDR and MASTER_PORT.
        rank: Rank of this process, None outside of a job.
        world_size: Number of ranks of the job, 1 outside of one.
        nodes: Number of machines of the job, None if the launcher does not set it.
    """

    host: str
    boot_id: str = ""
    system: SystemInfo
    holders: tuple[Holder, ...] = ()
    hidden: int = 0
    huge_pages: HugePages | None = None
    open_files: tuple[int, int] = (1 << 20, 1 << 20)
    locked_bytes: int | None = None
    logs: Folder
    logs_variable: str | None = None
    recipe_cache: Folder | None = None
    recipe_cache_config: str | None = None
    interface_names: str | None = None
    interfaces: Mapping[str, bool] = field(default_factory=dict)
    endpoint: Endpoint = field(default_factory=Endpoint)
    rank: int | None = None
    world_size: int = 1
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
    # First, because the import of the bridge sets MASTER_ADDR and MASTER_PORT.
    endpoint = find_endpoint(environ)
    environ = dict(environ)
    system = collect_system()
    holders, hidden = find_holders()
    cache = environ.get("PT_HPU_RECIPE_CACHE_CONFIG")
    logs = environ.get("HABANA_LOGS")
    return Machine(
        host=socket.gethostname(),
        boot_id=read_boot_id(),
        holders=holders,
        hidden=hidden,
        huge_pages=read_huge_pages(Path("/proc/meminfo")),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        logs=check_folder(logs or str(Path(environ.get("HOME") or Path.home(), DEFAULT_LOGS))),
        logs_variable=logs,
        recipe_cache=check_folder(cache.partition(",")[0]) if cache else None,
        recipe_cache_config=cache,
        interface_names=environ.get("HCCL_SOCKET_IFNAME"),
        interfaces=read_interfaces(Path("/sys/class/net")),
        endpoint=endpoint,
        rank=launcher_env.global_rank(environ),
        world_size=launcher_env.world_size(environ) or 1,
        nodes=launcher_env.num_nodes(environ),
        system=system,
    )


def check_folder(path: str) -> Folder:
    """Return whether a folder, or the one in which it would be created, can be written to."""
    if not path:
        return Folder(path=path, error="the path is empty")
    existing = Path(path)
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return Folder(path=path, error=f"{existing} is not a folder")
    # `os.access` knows read-only file systems, too.
    if not os.access(existing, os.W_OK | os.X_OK):
        reason = "it cannot be written to" if existing == Path(path) else f"{existing} cannot be written to"
        return Folder(path=path, error=reason)
    return Folder(path=path)


def read_boot_id(proc: Path = Path("/proc")) -> str:
    """Return the kernel's random id of this boot, "" if it cannot be read. Containers of a machine share it."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""


def read_huge_pages(meminfo: Path) -> HugePages | None:
    """Return the huge pages that /proc/meminfo lists, None if it lists none of the values."""
    try:
        lines = meminfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    values = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    numbers = [values.get(name, [""]) for name in ("HugePages_Total", "HugePages_Free", "Hugepagesize")]
    if not all(number and number[0].isdecimal() for number in numbers):
        return None
    total, free, size = (int(number[0]) for number in numbers)
    return HugePages(total=total, free=free, size_kib=size)


def read_interfaces(net: Path) -> dict[str, bool]:
    """Return the network interfaces of a folder like /sys/class/net, and whether each is up."""
    try:
        names = sorted(entry.name for entry in net.iterdir())
    except OSError:
        return {}
    return {name: _is_up(net / name) for name in names}


def find_endpoint(environ: Mapping[str, str]) -> Endpoint:
    """Resolve the address of rank 0, and try its port: bind it if the address is this machine's, else connect to it."""
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    # A job of several machines whose launcher does not name the first one.
    with contextlib.suppress(ValueError):
        if address is None and (job := launcher_env.find_launcher_env(environ)) is not None:
            address, port = job.address, job.port
    if address is None:
        return Endpoint(port=port)
    try:
        family, _, _, _, target = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        return Endpoint(address=address, port=port, error=getattr(error, "strerror", None) or str(error))
    resolved = str(target[0])
    is_here, state = _try_port(family, resolved, launcher_env.parse_port(port))
    return Endpoint(address=address, port=port, resolved=resolved, is_here=is_here, state=state)


def _try_port(family: int, address: str, port: int | None) -> tuple[bool, PortState]:
    """Return whether an address is this machine's, and the state of its port."""
    with socket.socket(family, socket.SOCK_STREAM) as server:
        # As torch's store does: a connection that lingers from an earlier job does not keep the port.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((address, port or 0))
            server.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False, "unknown" if port is None else _connect(address, port)
            return True, "in use" if error.errno == errno.EADDRINUSE else "unknown"
    return True, "unknown" if port is None else "free"


def _connect(address: str, port: int) -> PortState:
    try:
        socket.create_connection((address, port), timeout=_CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "timeout"
    except OSError:
        return "unknown"
    return "reachable"


def _is_up(interface: Path) -> bool:
    try:
        return bool(int((interface / "flags").read_text(encoding="ascii"), 16) & _UP)
    except (OSError, ValueError):
        return False


def _limit(kind: int) -> int | None:
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft
