"""Tests of the checks, by injected faults."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from packaging.version import Version

from hpu_core.discovery import SynapseVersion
from hpu_core.info import SystemInfo
from hpu_doctor.checks import Check, can_train, run_checks, to_json
from hpu_doctor.holders import Holder
from hpu_doctor.machine import Address, Machine

MakeSystem = Callable[..., SystemInfo]
MakeMachine = Callable[..., Machine]


def _holder(index: int, pid: int = 4711) -> Holder:
    return Holder(pid=pid, command="python train.py", node=f"/dev/accel/accel{index}", module_id=index)


class _Fault(NamedTuple):
    """A fault, the fields that inject it, the check that reports it, and what the check says."""

    name: str
    fields: dict[str, Any]
    check: str
    blocks_training: bool
    message: str


_FAULTS = [
    _Fault(
        "user space of another release",
        {"system": {"synapse": SynapseVersion(Version("1.23.0.695"), "habana-torch-plugin")}},
        "driver",
        False,
        "driver 1.22.0-1a2b3c4 is of another release than the user space, SynapseAI 1.23.0",
    ),
    _Fault(
        "a card is held",
        {"holders": (_holder(3),)},
        "busy cards",
        False,
        "/dev/accel/accel3 (module 3) is in use by pid 4711 (python train.py)",
    ),
    _Fault(
        "every card is held",
        {"holders": tuple(map(_holder, range(8)))},
        "busy cards",
        True,
        "/dev/accel/accel0 (module 0) is in use by pid 4711 (python train.py)",
    ),
    _Fault(
        "locked memory is limited",
        {"locked_bytes": 8 << 20},
        "locked memory",
        False,
        "locked memory is limited to 8192 KiB, which network transfers may exceed",
    ),
    _Fault(
        "the folder of logs is read-only",
        {"logs_error": "/var/log cannot be written to"},
        "logs",
        True,
        "logs cannot be written to /var/log/habana_logs: /var/log cannot be written to. No card opens then",
    ),
    _Fault(
        "an interface of another machine",
        {"interface_names": "ens1"},
        "network interface",
        True,
        "HCCL_SOCKET_IFNAME names 'ens1', which does not exist here",
    ),
    _Fault(
        "an interface that is down",
        {"interface_names": "eth0,eth1"},
        "network interface",
        True,
        "HCCL_SOCKET_IFNAME names 'eth1', which is down",
    ),
    _Fault(
        "an unknown host name",
        {"address": Address(name="nod-1", error="Name or service not known")},
        "MASTER_ADDR",
        True,
        "MASTER_ADDR='nod-1' cannot be resolved: Name or service not known",
    ),
    _Fault(
        "localhost for two machines",
        {"address": Address(name="localhost", resolved="127.0.0.1")},
        "MASTER_ADDR",
        True,
        "MASTER_ADDR='localhost' means a different machine on each of the 2 machines",
    ),
    _Fault(
        "no address for two machines",
        {"address": Address()},
        "MASTER_ADDR",
        True,
        "MASTER_ADDR is not set, and the job has 2 machines",
    ),
    _Fault(
        "an invalid HABANA_VISIBLE_MODULES",
        {"system": {"usable": None, "visible_modules": "all", "visible_modules_error": "must be a list"}},
        "cards and software",
        True,
        "HABANA_VISIBLE_MODULES is invalid",
    ),
]


def _with(make_machine: MakeMachine, make_system: MakeSystem, fields: dict[str, Any]) -> Machine:
    system = fields.get("system", {})
    return make_machine(**{**fields, "system": make_system(**system)})


def _only(checks: tuple[Check, ...], name: str) -> Check:
    (check,) = [check for check in checks if check.name == name]
    return check


def test_machine_without_a_problem(make_machine: MakeMachine) -> None:
    checks = run_checks(make_machine())

    assert can_train(checks)
    assert [problem for check in checks for problem in check.problems if check.name != "cards and software"] == []


@pytest.mark.parametrize("fault", _FAULTS, ids=[fault.name for fault in _FAULTS])
def test_injected_fault(make_machine: MakeMachine, make_system: MakeSystem, fault: _Fault) -> None:
    """One check reports it, with a cure, and says whether it blocks training."""
    checks = run_checks(_with(make_machine, make_system, fault.fields))
    problem = _only(checks, fault.check).problems[0]

    assert problem.message.startswith(fault.message)
    assert problem.blocks_training is fault.blocks_training
    assert problem.hint
    assert can_train(checks) is not fault.blocks_training
    assert {check.name for check in checks if check.problems} <= {fault.check, "cards and software"}


def test_simulated_machine_needs_no_limits(make_machine: MakeMachine, simulated_system: SystemInfo) -> None:
    checks = run_checks(
        make_machine(
            system=simulated_system,
            locked_bytes=1,
            logs_error="/var/log cannot be written to",
        )
    )

    assert can_train(checks)
    for name in ("locked memory", "logs"):
        assert _only(checks, name).problems == ()


def test_processes_that_cannot_be_inspected_are_counted(make_machine: MakeMachine) -> None:
    check = _only(run_checks(make_machine(hidden=7)), "busy cards")

    assert check.detail == "0 cards in use; 7 processes of other users could not be inspected: run as root on the host"
    assert check.problems == ()


def test_json_has_the_versions(make_machine: MakeMachine) -> None:
    machine = make_machine()
    report = to_json(machine, run_checks(machine))

    assert (report["schema_version"], report["host"], report["can_train"]) == (1, "node-1", True)
    assert report["versions"]["driver"] == "1.22.0-1a2b3c4"
    assert report["versions"]["Lightning"] == "lightning 2.5.5"
    assert report["versions"]["cards"] == "8"
