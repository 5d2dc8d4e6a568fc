"""Tests of the facts of a machine."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_core.info import SystemInfo
from hpu_doctor.checks import run_checks
from hpu_doctor.machine import (
    Address,
    collect_machine,
    find_address,
    folder_error,
    read_boot_id,
    read_interfaces,
)


def test_interfaces(tmp_path: Path) -> None:
    for name, flags in (("eth0", "0x1003"), ("eth1", "0x1002"), ("odd", "up")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(f"{flags}\n")

    assert read_interfaces(tmp_path) == {"eth0": True, "eth1": False, "odd": False}
    assert read_interfaces(tmp_path / "missing") == {}


@pytest.mark.parametrize(
    ("path", "error"),
    [(".", None), ("a/b", None), ("file/logs", "{}/file is not a folder")],
)
def test_folder_that_exists_or_would_be_created(path: str, error: str | None, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert folder_error(str(tmp_path / path)) == (error and error.format(tmp_path))


def test_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write to every folder, so the answer of the system is replaced."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert folder_error(str(tmp_path)) == "it cannot be written to"
    assert folder_error(str(tmp_path / "logs")) == f"{tmp_path} cannot be written to"


_SLURM = {"SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16", "SLURM_NNODES": "2", "SLURM_JOB_ID": "70012"}


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, None),
        ({**_SLURM, "SLURM_NODELIST": "127.0.0.1,other"}, "127.0.0.1"),
        ({**_SLURM, "SLURM_NODELIST": "127.0.0.1", "MASTER_ADDR": "127.0.0.2"}, "127.0.0.2"),
        ({"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}, None),
    ],
    ids=["no job", "SLURM's first machine", "the user's variable", "a launcher without an address"],
)
def test_address_is_the_one_that_lightning_will_use(environment: dict[str, str], name: str | None) -> None:
    assert find_address(environment) == Address(name=name, resolved=name)


def test_srun_of_the_documentation_can_train(make_system: Callable[..., SystemInfo], tmp_path: Path) -> None:
    """`srun --ntasks-per-node=1 hpu-doctor --json` has no MASTER_ADDR."""
    environment = {**_SLURM, "SLURM_NODELIST": "192.0.2.1,192.0.2.2", "HABANA_LOGS": str(tmp_path)}
    machine = collect_machine(environment, collect_system=make_system)

    (check,) = [check for check in run_checks(machine) if check.name == "MASTER_ADDR"]
    assert (check.detail, check.problems) == ("192.0.2.1 is 192.0.2.1", ())


def test_logs_without_a_variable_are_those_of_the_home_folder(
    make_system: Callable[..., SystemInfo], tmp_path: Path
) -> None:
    """Only Intel's images set HABANA_LOGS, to /var/log/habana_logs, which an ordinary user cannot write to."""
    machine = collect_machine({"HOME": str(tmp_path)}, collect_system=make_system)

    assert (machine.logs, machine.logs_error, machine.logs_variable) == (str(tmp_path / ".habana_logs"), None, None)
    assert (machine.rank, machine.nodes) == (None, None)


def test_variables_that_the_bridge_sets_are_not_the_users(make_system: Callable[..., SystemInfo]) -> None:
    environment: dict[str, str] = {}

    def collect_system() -> SystemInfo:
        environment.update(MASTER_ADDR="localhost")
        return make_system()

    machine = collect_machine(environment, collect_system=collect_system)

    assert machine.address.name is None


def test_unknown_host() -> None:
    address = find_address({"MASTER_ADDR": "no such host"})

    assert address.error
    assert (address.name, address.resolved) == ("no such host", None)


def test_boot_of_a_machine(tmp_path: Path) -> None:
    assert read_boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip() != ""
    assert not read_boot_id(tmp_path)
