"""Tests of the checks, by injected faults."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from packaging.version import Version

from hpu_core.discovery import SynapseVersion
from hpu_core.info import SystemInfo
from hpu_doctor.checks import Check, can_train, run_checks, to_json
from hpu_doctor.holders import Holder
from hpu_doctor.machine import Endpoint, Folder, HugePages, Machine

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
        "no huge pages",
        {"huge_pages": HugePages(total=0, free=0, size_kib=2048)},
        "huge pages",
        False,
        "0 MiB of huge pages are free; Intel's Kubernetes guide asks for 95000 MiB for 8 cards",
    ),
    _Fault(
        "few open files",
        {"open_files": (256, 4096)},
        "open files",
        False,
        "the limit of open files is 256, and the job has 16 ranks",
    ),
    _Fault(
        "many ranks with the default limit",
        {"open_files": (1024, 524_288), "world_size": 256},
        "open files",
        False,
        "the limit of open files is 1024, and the job has 256 ranks",
    ),
    _Fault(
        "thousands of ranks with a limit that is enough for hundreds",
        {"open_files": (8192, 8192), "world_size": 4096},
        "open files",
        False,
        "the limit of open files is 8192, and the job has 4096 ranks, for which rank 0 may need 17408",
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
        {"logs": Folder(path="/var/log/habana_logs", error="/var/log cannot be written to")},
        "logs",
        True,
        "logs cannot be written to /var/log/habana_logs: /var/log cannot be written to. No card opens then",
    ),
    _Fault(
        "the recipe cache is read-only",
        {"recipe_cache": Folder(path="/r", error="it cannot be written to"), "recipe_cache_config": "/r,false,8192"},
        "recipe cache",
        False,
        "recipes cannot be cached in /r: it cannot be written to",
    ),
    _Fault(
        "the recipe cache is misspelt",
        {"recipe_cache": Folder(path="/r"), "recipe_cache_config": "/r,8192"},
        "recipe cache",
        False,
        "PT_HPU_RECIPE_CACHE_CONFIG must be `path,delete,size in MB`, got '/r,8192'",
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
        {"endpoint": Endpoint(address="nod-1", port="29500", error="Name or service not known")},
        "MASTER_ADDR",
        True,
        "MASTER_ADDR='nod-1' cannot be resolved: Name or service not known",
    ),
    _Fault(
        "localhost for two machines",
        {"endpoint": Endpoint(address="localhost", port="12345", resolved="127.0.0.1", is_here=True, state="free")},
        "MASTER_ADDR",
        True,
        "MASTER_ADDR='localhost' means a different machine on each of the 2 machines",
    ),
    _Fault(
        "no address for two machines",
        {"endpoint": Endpoint()},
        "MASTER_ADDR",
        True,
        "MASTER_ADDR is not set, and the job has 2 machines",
    ),
    _Fault(
        "a port that is not a number",
        {"endpoint": Endpoint(address="node-1", port="29500x", resolved="10.0.0.1", is_here=True)},
        "MASTER_PORT",
        True,
        "MASTER_PORT must be a number from 1 to 65535, got '29500x'",
    ),
    _Fault(
        "a port in use",
        {"endpoint": Endpoint(address="node-1", port="29500", resolved="10.0.0.1", is_here=True, state="in use")},
        "MASTER_PORT",
        False,
        "port 29500 is in use on this machine, which is that of rank 0",
    ),
    _Fault(
        "no rank 0",
        {"endpoint": Endpoint(address="node-0", port="29500", resolved="10.0.0.9", state="refused"), "rank": None},
        "MASTER_PORT",
        False,
        "nothing listens at node-0:29500",
    ),
    _Fault(
        "a firewall",
        {"endpoint": Endpoint(address="node-0", port="29500", resolved="10.0.0.9", state="timeout"), "rank": 8},
        "MASTER_PORT",
        True,
        "node-0:29500 does not answer",
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
            huge_pages=HugePages(total=0, free=0, size_kib=2048),
            logs=Folder(path="/var/log/habana_logs", error="/var/log cannot be written to"),
        )
    )

    assert can_train(checks)
    for name in ("huge pages", "locked memory", "logs"):
        assert _only(checks, name).problems == ()


def test_processes_that_cannot_be_inspected_are_counted(make_machine: MakeMachine) -> None:
    check = _only(run_checks(make_machine(hidden=7)), "busy cards")

    assert check.detail == "0 cards in use; 7 processes of other users could not be inspected: run as root on the host"
    assert check.problems == ()


def test_driver_alone_is_not_compared(make_machine: MakeMachine, make_system: MakeSystem) -> None:
    system = make_system(synapse=SynapseVersion(Version("1.22.0"), "driver"))

    check = _only(run_checks(make_machine(system=system)), "driver")
    assert (check.problems, check.is_done) == ((), False)


def test_port_of_a_running_rank_0_is_no_problem_for_its_peers(make_machine: MakeMachine) -> None:
    endpoint = Endpoint(address="node-1", port="29500", resolved="10.0.0.1", is_here=True, state="in use")

    assert _only(run_checks(make_machine(endpoint=endpoint, rank=3)), "MASTER_PORT").problems == ()


def test_ranks_that_start_together_wait_for_rank_0(make_machine: MakeMachine) -> None:
    """Its port may still be closed when the others are checked."""
    endpoint = Endpoint(address="node-0", port="29500", resolved="10.0.0.9", state="refused")

    assert _only(run_checks(make_machine(endpoint=endpoint, rank=8)), "MASTER_PORT").problems == ()


@pytest.mark.parametrize("config", ["/r", "/r,", "/r,True", "/r,false,", "/r,false,1", "/r,0,1"])
def test_valid_recipe_cache(make_machine: MakeMachine, config: str) -> None:
    folder = Folder(path="/r")

    assert (
        _only(run_checks(make_machine(recipe_cache=folder, recipe_cache_config=config)), "recipe cache").problems == ()
    )


def test_json_has_the_versions(make_machine: MakeMachine) -> None:
    machine = make_machine()
    report = to_json(machine, run_checks(machine))

    assert (report["schema_version"], report["host"], report["can_train"]) == (1, "node-1", True)
    assert report["versions"]["driver"] == "1.22.0-1a2b3c4"
    assert report["versions"]["Lightning"] == "lightning 2.5.5"
    assert report["versions"]["cards"] == "8"
