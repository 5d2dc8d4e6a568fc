"""Tests of the checks, by injected faults."""

from collections.abc import Callable
from typing import Any

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


_OTHER = {"synapse": SynapseVersion(Version("1.23.0.695"), "habana-torch-plugin")}
_ALL = {"usable": None, "visible_modules": "all", "visible_modules_error": "must be a list"}
_HELD = "is in use by pid 4711 (python train.py)"
# By the check that reports it: fields that inject a fault, whether it blocks training, and what the check says.
_FAULTS: list[tuple[str, dict[str, Any], bool, str]] = [
    ("driver", {"system": _OTHER}, False, "driver 1.22.0-1a2b3c4 is of another release than the user space, SynapseAI"),
    ("busy cards", {"holders": (_holder(3),)}, False, f"/dev/accel/accel3 (module 3) {_HELD}"),
    ("busy cards", {"holders": tuple(map(_holder, range(8)))}, True, f"/dev/accel/accel0 (module 0) {_HELD}"),
    ("locked memory", {"locked_bytes": 8 << 20}, False, "locked memory is limited to 8192 KiB, which network"),
    ("logs", {"logs_error": "it is full"}, True, "logs cannot be written to /var/log/habana_logs: it is full. No card"),
    ("network interface", {"interface_names": "ens1"}, True, "HCCL_SOCKET_IFNAME names 'ens1', which does not exist"),
    ("network interface", {"interface_names": "eth0,eth1"}, True, "HCCL_SOCKET_IFNAME names 'eth1', which is down"),
    (
        "MASTER_ADDR",
        {"address": Address(name="nod-1", error="unknown")},
        True,
        "MASTER_ADDR='nod-1' cannot be resolved",
    ),
    (
        "MASTER_ADDR",
        {"address": Address(name="localhost", resolved="127.0.0.1")},
        True,
        "MASTER_ADDR='localhost' means a different machine on each of the 2 machines",
    ),
    ("MASTER_ADDR", {"address": Address()}, True, "MASTER_ADDR is not set, and the job has 2 machines"),
    ("cards and software", {"system": _ALL}, True, "HABANA_VISIBLE_MODULES is invalid"),
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


@pytest.mark.parametrize(("name", "fields", "blocks", "message"), _FAULTS, ids=[each[3] for each in _FAULTS])
def test_injected_fault(  # noqa: PLR0913, PLR0917 - the columns of the table, and two fixtures.
    name: str, fields: dict[str, Any], blocks: bool, message: str, make_machine: MakeMachine, make_system: MakeSystem
) -> None:
    """One check reports it, with a cure, and says whether it blocks training."""
    checks = run_checks(_with(make_machine, make_system, fields))
    problem = _only(checks, name).problems[0]

    assert problem.message.startswith(message)
    assert problem.blocks_training is blocks
    assert problem.hint
    assert can_train(checks) is not blocks
    assert {check.name for check in checks if check.problems} <= {name, "cards and software"}


def test_simulated_machine_needs_no_limits(make_machine: MakeMachine, simulated_system: SystemInfo) -> None:
    faults = {"system": simulated_system, "locked_bytes": 1, "logs_error": "it is full"}
    checks = run_checks(make_machine(**faults))

    assert can_train(checks)
    for name in ("locked memory", "logs"):
        assert _only(checks, name).problems == ()
    # A folder that the user has named is checked here too, and blocks nothing.
    (logs,) = _only(run_checks(make_machine(**faults, logs_variable="/logs")), "logs").problems
    assert not logs.blocks_training


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
