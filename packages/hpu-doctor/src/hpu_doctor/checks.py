"""Checks of a machine: pure functions of its facts. Each problem comes with a fix."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from hpu_core.discovery import driver_release
from hpu_core.launcher_env import parse_port
from hpu_doctor.diagnosis import Problem, diagnose
from hpu_doctor.machine import Machine

SCHEMA: Final = 1

# Intel's Kubernetes guide: hugepages-2Mi of 95000Mi for 8 cards.
_HUGE_MIB_PER_DEVICE: Final = 95000 // 8
# The default of Linux, which processes of ordinary size need.
_MIN_OPEN_FILES: Final = 1024
# Above so many ranks Intel's Megatron-LM asks for a higher limit of open files. Rank 0 of a simulated job has three
# sockets for each rank; those of HCCL are unknown.
_MANY_RANKS: Final = 128
_FILES_PER_RANK: Final = 4
# path,delete,size in MB; the last two may be missing.
_CACHE_CONFIG: Final = re.compile(r"[^,]+(?:,(?:true|false|[01])?(?:,[0-9]*)?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check.

    Attributes:
        name: What was checked.
        detail: The facts in a few words.
        problems: The problems found.
        is_done: Whether the facts were there to check.
    """

    name: str
    detail: str
    problems: tuple[Problem, ...] = ()
    is_done: bool = True


class _Unknown(str):
    """Detail of a check whose facts are unknown."""

    __slots__ = ()


# The detail of a check, then its problems.
_Found: TypeAlias = Iterator[str | Problem]


def run_checks(machine: Machine) -> tuple[Check, ...]:
    """Return the result of every check."""
    checks: dict[str, Callable[[Machine], _Found]] = {
        "cards and software": _system,
        "driver": _driver,
        "busy cards": _used_devices,
        "huge pages": _huge_pages,
        "open files": _open_files,
        "locked memory": _locked_memory,
        "logs": _logs,
        "recipe cache": _recipe_cache,
        "network interface": _interface,
        "MASTER_ADDR": _address,
        "MASTER_PORT": _port,
    }
    results = []
    for name, check in checks.items():
        detail, *found = check(machine)
        problems = tuple(each for each in found if isinstance(each, Problem))
        results.append(
            Check(name=name, detail=str(detail), problems=problems, is_done=not isinstance(detail, _Unknown))
        )
    return tuple(results)


def can_train(checks: tuple[Check, ...]) -> bool:
    """Return whether no problem blocks training."""
    return not any(problem.blocks_training for check in checks for problem in check.problems)


def to_json(machine: Machine, checks: tuple[Check, ...]) -> dict[str, Any]:
    """Return the report as plain data that `json` can serialize."""
    return {
        "schema_version": SCHEMA,
        "host": machine.host,
        "boot_id": machine.boot_id,
        "rank": machine.rank,
        "can_train": can_train(checks),
        "versions": versions(machine),
        "checks": [
            {"name": check.name, "detail": check.detail, "problems": [asdict(problem) for problem in check.problems]}
            for check in checks
        ],
    }


def versions(machine: Machine) -> dict[str, str | None]:
    """Return what has to be equal on all machines of a job."""
    system = machine.system
    used = system.lightning.used
    generations = sorted({device.generation for device in system.devices if device.generation})
    return {
        "driver": ", ".join(machine.system.driver_versions) or None,
        "SynapseAI": str(system.synapse.version) if system.synapse else None,
        "bridge": system.bridge.version,
        "torch": system.torch,
        "Lightning": f"{used} {system.lightning.installed.get(used, '')}".strip() if used else None,
        "Python": system.python,
        "hpu-core": system.hpu_core,
        "generation": ", ".join(generations) or None,
        "cards": str(len(system.devices)),
    }


def _system(machine: Machine) -> _Found:
    system = machine.system
    kind = "simulated cards" if system.bridge.simulated else "cards"
    yield f"{len(system.devices)} {kind}, {'unknown' if system.usable is None else system.usable} usable"
    yield from diagnose(system)


def _driver(machine: Machine) -> _Found:
    drivers, synapse = machine.system.driver_versions, machine.system.synapse
    if not drivers or synapse is None or synapse.source == "driver":
        yield _Unknown(f"not compared, because the {'user space' if drivers else 'driver'}'s release is unknown")
        return
    user_space = synapse.version.release[:3]
    name = ".".join(map(str, user_space))
    yield f"driver {', '.join(drivers)}, user space {name}"
    for driver in drivers:
        if (parsed := driver_release(driver)) and parsed.release[:3] != user_space:
            yield Problem.note(
                f"driver {driver} is of another release than the user space, SynapseAI {name}",
                "Use Intel's image of the driver's release, or install the driver of the image's release on the "
                "host. User space 1.22 and 1.23 on a 1.24 driver failed at the first matmul with synStatus 26.",
            )


def _used_devices(machine: Machine) -> _Found:
    by_device: dict[str, list[str]] = {}
    for holder in machine.holders:
        module = "" if holder.module_id is None else f" (module {holder.module_id})"
        by_device.setdefault(f"{holder.node}{module}", []).append(f"pid {holder.pid} ({holder.command})")
    detail = f"{len(by_device)} cards in use"
    if machine.hidden:
        # Root in a container without CAP_SYS_PTRACE cannot read them either.
        detail += f"; {machine.hidden} processes of other users could not be inspected: run as root on the host"
    yield detail
    for device, processes in by_device.items():
        yield Problem(
            blocks_training=0 < len(machine.system.devices) <= len(by_device),
            message=f"{device} is in use by {', '.join(processes)}",
            hint="End the process if it is left over, or set HABANA_VISIBLE_MODULES to modules of free cards.",
        )


def _huge_pages(machine: Machine) -> _Found:
    pages = machine.huge_pages
    if pages is None:
        yield _Unknown("the kernel does not report them")
        return
    free = pages.free * pages.size_kib // 1024
    yield f"{free} of {pages.total * pages.size_kib // 1024} MiB free"
    devices = _real_devices(machine)
    needed = devices * _HUGE_MIB_PER_DEVICE
    if free < needed:
        count = -(-needed * 1024 // max(1, pages.size_kib))
        yield Problem.note(
            f"{free} MiB of huge pages are free; Intel's Kubernetes guide asks for {needed} MiB for {devices} cards",
            f"On the host, `sysctl -w vm.nr_hugepages={count}`; in Kubernetes, request hugepages-2Mi.",
        )


def _open_files(machine: Machine) -> _Found:
    soft, hard = machine.open_files
    yield f"limit {soft}, at most {hard}"
    needed = _MIN_OPEN_FILES + (_FILES_PER_RANK * machine.world_size if machine.world_size > _MANY_RANKS else 0)
    if soft < needed:
        yield Problem.note(
            f"the limit of open files is {soft}, and the job has {machine.world_size} ranks, for which rank 0 may need "
            f"{needed}",
            f"`ulimit -n {hard if hard >= needed else max(needed, 65536)}` on every machine before the program starts.",
        )


def _locked_memory(machine: Machine) -> _Found:
    limit = machine.locked_bytes
    yield "unlimited" if limit is None else f"limit {limit // 1024} KiB"
    if limit is not None and _real_devices(machine):
        yield Problem.note(
            f"locked memory is limited to {limit // 1024} KiB, which network transfers may exceed",
            "`ulimit -l unlimited`; for a container, `docker run --ulimit memlock=-1`.",
        )


def _logs(machine: Machine) -> _Found:
    logs = machine.logs
    yield f"{'HABANA_LOGS' if machine.logs_variable else 'HABANA_LOGS is not set:'} {logs.path}"
    if logs.error is not None and (machine.logs_variable or _real_devices(machine)):
        yield Problem(
            blocks_training=bool(_real_devices(machine)),
            message=f"logs cannot be written to {logs.path}: {logs.error}. No card opens then (synStatus=26)",
            hint="`export HABANA_LOGS=/tmp/habana_logs`, or another folder that this user can write to.",
        )


def _recipe_cache(machine: Machine) -> _Found:
    folder, config = machine.recipe_cache, machine.recipe_cache_config
    if folder is None or config is None:
        yield "PT_HPU_RECIPE_CACHE_CONFIG is not set"
        return
    yield config
    if not _CACHE_CONFIG.fullmatch(config):
        yield Problem.note(
            f"PT_HPU_RECIPE_CACHE_CONFIG must be `path,delete,size in MB`, got {config!r}",
            "For example `export PT_HPU_RECIPE_CACHE_CONFIG=/tmp/recipes,false,8192`.",
        )
    elif folder.error is not None:
        yield Problem.note(
            f"recipes cannot be cached in {folder.path}: {folder.error}",
            "Set the path in PT_HPU_RECIPE_CACHE_CONFIG to a folder that this user can write to.",
        )


def _interface(machine: Machine) -> _Found:
    names = machine.interface_names
    yield f"HCCL_SOCKET_IFNAME={names}" if names else "HCCL_SOCKET_IFNAME is not set: HCCL chooses one"
    up = ", ".join(known for known, is_up in machine.interfaces.items() if is_up and known != "lo") or "none"
    hint = f"Set HCCL_SOCKET_IFNAME to one that is up here ({up}), or unset it."
    for name in map(str.strip, names.split(",") if names else ()):
        if name not in machine.interfaces:
            yield Problem.error(f"HCCL_SOCKET_IFNAME names {name!r}, which does not exist here", hint)
        elif not machine.interfaces[name]:
            yield Problem.error(f"HCCL_SOCKET_IFNAME names {name!r}, which is down", hint)


def _address(machine: Machine) -> _Found:
    endpoint = machine.endpoint
    is_multi_node = (machine.nodes or 1) > 1
    if endpoint.address is None:
        yield "not set"
        if is_multi_node:
            yield Problem.error(
                f"MASTER_ADDR is not set, and the job has {machine.nodes} machines",
                "Set it to the host name of rank 0's machine on every machine, unless the launcher does.",
            )
    elif endpoint.error is not None:
        yield endpoint.address
        yield Problem.error(
            f"MASTER_ADDR={endpoint.address!r} cannot be resolved: {endpoint.error}",
            "Use the IP address of rank 0's machine, or add its name to DNS or /etc/hosts.",
        )
    else:
        yield f"{endpoint.address} is {endpoint.resolved}"
        if is_multi_node and (endpoint.resolved or "").startswith(("127.", "::1")):
            yield Problem.error(
                f"MASTER_ADDR={endpoint.address!r} means a different machine on each of the {machine.nodes} machines",
                "Set it to a host name or address of rank 0's machine that the others can reach. The bridge's import "
                "sets localhost where it is unset.",
            )


def _port(machine: Machine) -> _Found:
    endpoint = machine.endpoint
    place = f"{endpoint.address}:{endpoint.port}"
    if endpoint.port is None:
        yield "not set"
    elif parse_port(endpoint.port) is None:
        yield endpoint.port
        yield Problem.error(
            f"MASTER_PORT must be a number from 1 to 65535, got {endpoint.port!r}",
            "`export MASTER_PORT=29500`, the same on every machine.",
        )
    else:
        where = "here" if endpoint.is_here else f"on {endpoint.address}"
        yield endpoint.port if endpoint.state == "unknown" else f"{endpoint.port} is {endpoint.state} {where}"
        if endpoint.is_here and machine.rank not in {None, 0}:
            # Rank 0 of this machine may listen already.
            return
        if endpoint.state == "in use":
            yield Problem.note(
                f"port {endpoint.port} is in use on this machine, which is that of rank 0",
                "Set another MASTER_PORT on every machine, unless the training that listens there is this one.",
            )
        # The ranks of a launcher start together, and rank 0 may not listen yet.
        elif endpoint.state == "refused" and machine.rank is None:
            yield Problem.note(
                f"nothing listens at {place}",
                "Start rank 0 first, and check that MASTER_ADDR and MASTER_PORT are the same on every machine.",
            )
        elif endpoint.state == "timeout":
            yield Problem.error(
                f"{place} does not answer",
                "Check the network and the firewall between this machine and that of rank 0.",
            )


def _real_devices(machine: Machine) -> int:
    return sum(not device.simulated for device in machine.system.devices)
