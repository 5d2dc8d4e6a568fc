"""Checks of a machine: pure functions of its facts. Each problem comes with a fix."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from hpu_core.discovery import driver_release
from hpu_doctor.diagnosis import Problem, diagnose
from hpu_doctor.machine import Machine

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check.

    Attributes:
        name: What was checked.
        detail: The facts in a few words.
        problems: The problems found.
    """

    name: str
    detail: str
    problems: tuple[Problem, ...] = ()


# The detail of a check, then its problems; nothing if the facts are unknown.
_Found: TypeAlias = Iterator[str | Problem]


def run_checks(machine: Machine) -> tuple[Check, ...]:
    """Return the result of every check."""
    checks: dict[str, Callable[[Machine], _Found]] = {
        "cards and software": _system,
        "driver": _driver,
        "busy cards": _used_devices,
        "locked memory": _locked_memory,
        "logs": _logs,
        "network interface": _interface,
        "MASTER_ADDR": _address,
    }
    results = []
    for name, check in checks.items():
        found = list(check(machine))
        problems = tuple(each for each in found if isinstance(each, Problem))
        results += [Check(name=name, detail=each, problems=problems) for each in found if isinstance(each, str)]
    return tuple(results)


def can_train(checks: Sequence[Check]) -> bool:
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
        "checks": [asdict(check) for check in checks],
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


def _locked_memory(machine: Machine) -> _Found:
    limit = machine.locked_bytes
    yield "unlimited" if limit is None else f"limit {limit // 1024} KiB"
    if limit is not None and _real_devices(machine):
        yield Problem.note(
            f"locked memory is limited to {limit // 1024} KiB, which network transfers may exceed",
            "`ulimit -l unlimited`; for a container, `docker run --ulimit memlock=-1`.",
        )


def _logs(machine: Machine) -> _Found:
    yield f"{'HABANA_LOGS' if machine.logs_variable else 'HABANA_LOGS is not set:'} {machine.logs}"
    if machine.logs_error is not None and (machine.logs_variable or _real_devices(machine)):
        yield Problem(
            blocks_training=bool(_real_devices(machine)),
            message=f"logs cannot be written to {machine.logs}: {machine.logs_error}. No card opens then "
            "(synStatus=26)",
            hint="`export HABANA_LOGS=/tmp/habana_logs`, or another folder that this user can write to.",
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
    address = machine.address
    is_multi_node = (machine.nodes or 1) > 1
    if address.name is None:
        yield "not set"
        if is_multi_node:
            yield Problem.error(
                f"MASTER_ADDR is not set, and the job has {machine.nodes} machines",
                "Set it to the host name of rank 0's machine on every machine, unless the launcher does.",
            )
    elif address.error is not None:
        yield address.name
        yield Problem.error(
            f"MASTER_ADDR={address.name!r} cannot be resolved: {address.error}",
            "Use the IP address of rank 0's machine, or add its name to DNS or /etc/hosts.",
        )
    else:
        yield f"{address.name} is {address.resolved}"
        if is_multi_node and (address.resolved or "").startswith(("127.", "::1")):
            yield Problem.error(
                f"MASTER_ADDR={address.name!r} means a different machine on each of the {machine.nodes} machines",
                "Set it to a host name or address of rank 0's machine that the others can reach. The bridge's import "
                "sets localhost where it is unset.",
            )


def _real_devices(machine: Machine) -> int:
    return sum(not device.simulated for device in machine.system.devices)
