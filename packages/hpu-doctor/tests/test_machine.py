"""Tests of the facts of a machine."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpu_core.info import SystemInfo
from hpu_doctor.checks import run_checks
from hpu_doctor.machine import (
    Endpoint,
    HugePages,
    check_folder,
    collect_machine,
    find_endpoint,
    read_boot_id,
    read_huge_pages,
    read_interfaces,
)


def test_huge_pages(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 1 kB\nHugePages_Total:     128\nHugePages_Free:       64\nHugepagesize:       2048 kB\n")

    assert read_huge_pages(path) == HugePages(total=128, free=64, size_kib=2048)


@pytest.mark.parametrize(
    "text", ["", "HugePages_Total:\n", "HugePages_Total: x\nHugePages_Free: 1\nHugepagesize: 1 kB"]
)
def test_unknown_huge_pages(tmp_path: Path, text: str) -> None:
    path = tmp_path / "meminfo"
    path.write_text(text)

    assert read_huge_pages(path) is None
    assert read_huge_pages(tmp_path / "missing") is None


def test_interfaces(tmp_path: Path) -> None:
    for name, flags in (("eth0", "0x1003"), ("eth1", "0x1002"), ("odd", "up")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(f"{flags}\n")

    assert read_interfaces(tmp_path) == {"eth0": True, "eth1": False, "odd": False}
    assert read_interfaces(tmp_path / "missing") == {}


def test_writable_folder(tmp_path: Path) -> None:
    folder = check_folder(str(tmp_path))

    assert folder.error is None


def test_folder_that_would_be_created(tmp_path: Path) -> None:
    assert check_folder(str(tmp_path / "a" / "b")).error is None


def test_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write to every folder, so the answer of the system is replaced."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert check_folder(str(tmp_path)).error == "it cannot be written to"
    assert check_folder(str(tmp_path / "logs")).error == f"{tmp_path} cannot be written to"


def test_file_in_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()

    assert check_folder(str(path / "logs")).error == f"{path} is not a folder"


def test_empty_path() -> None:
    assert check_folder("").error == "the path is empty"


@pytest.fixture
def listener() -> Iterator[int]:
    """Port of this machine that is in use."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_port_in_use(listener: int) -> None:
    endpoint = find_endpoint({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener)})

    assert (endpoint.resolved, endpoint.is_here, endpoint.state) == ("127.0.0.1", True, "in use")


def test_free_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]

    assert find_endpoint({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}).state == "free"


def test_address_without_a_port() -> None:
    endpoint = find_endpoint({"MASTER_ADDR": "127.0.0.1"})

    assert (endpoint.is_here, endpoint.state, endpoint.port) == (True, "unknown", None)


def test_unknown_host() -> None:
    endpoint = find_endpoint({"MASTER_ADDR": "no such host", "MASTER_PORT": "29500"})

    assert endpoint.error
    assert endpoint.resolved is None


@pytest.mark.parametrize(
    ("error", "state"),
    [(None, "reachable"), (ConnectionRefusedError(), "refused"), (TimeoutError(), "timeout"), (OSError(), "unknown")],
)
def test_port_of_another_machine(monkeypatch: pytest.MonkeyPatch, error: OSError | None, state: str) -> None:
    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        assert (address, timeout > 0) == (("192.0.2.1", 29500), True)
        if error is not None:
            raise error
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    endpoint = find_endpoint({"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "29500"})

    assert (endpoint.is_here, endpoint.state) == (False, state)


def test_no_address() -> None:
    assert find_endpoint({"MASTER_PORT": "29500"}) == Endpoint(port="29500")


_SLURM = {"SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16", "SLURM_NNODES": "2", "SLURM_JOB_ID": "70012"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({**_SLURM, "SLURM_NODELIST": "127.0.0.1,other"}, ("127.0.0.1", "15012", None)),
        ({**_SLURM, "SLURM_NODELIST": "127.0.0.1", "MASTER_ADDR": "127.0.0.2"}, ("127.0.0.2", None, None)),
        ({"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}, (None, None, None)),
    ],
    ids=["SLURM's first machine", "the user's variable", "a launcher without an address"],
)
def test_endpoint_of_a_launcher(environment: dict[str, str], expected: tuple[str | None, ...]) -> None:
    """It is the one that Lightning will use."""
    endpoint = find_endpoint(environment)

    assert (endpoint.address, endpoint.port, endpoint.error) == expected


def test_srun_of_the_documentation_can_train(
    make_system: Callable[..., SystemInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`srun --ntasks-per-node=1 hpu-doctor --json` has no MASTER_ADDR."""
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: socket.socket())
    environment = {**_SLURM, "SLURM_NODELIST": "192.0.2.1,192.0.2.2", "HABANA_LOGS": str(tmp_path)}
    machine = collect_machine(environment, collect_system=make_system)

    (check,) = [check for check in run_checks(machine) if check.name == "MASTER_ADDR"]
    assert (check.detail, check.problems) == ("192.0.2.1 is 192.0.2.1", ())


def test_logs_without_a_variable_are_those_of_the_home_folder(
    make_system: Callable[..., SystemInfo], tmp_path: Path
) -> None:
    """Only Intel's images set HABANA_LOGS, to /var/log/habana_logs, which an ordinary user cannot write to."""
    machine = collect_machine({"HOME": str(tmp_path)}, collect_system=make_system)

    assert (machine.logs.path, machine.logs.error) == (str(tmp_path / ".habana_logs"), None)


def test_machine_of_a_rank(make_system: Callable[..., SystemInfo], tmp_path: Path) -> None:
    environment = {
        "SLURM_PROCID": "9",
        "SLURM_NTASKS": "16",
        "SLURM_NNODES": "2",
        "HABANA_LOGS": str(tmp_path),
        "PT_HPU_RECIPE_CACHE_CONFIG": f"{tmp_path},false,1024",
        "HCCL_SOCKET_IFNAME": "eth0",
    }
    machine = collect_machine(environment, collect_system=make_system)

    assert (machine.rank, machine.world_size, machine.nodes) == (9, 16, 2)
    assert (machine.logs.path, machine.logs_variable) == (str(tmp_path), str(tmp_path))
    assert machine.recipe_cache is not None
    assert machine.recipe_cache.path == str(tmp_path)
    assert machine.interface_names == "eth0"


def test_boot_of_a_machine(tmp_path: Path) -> None:
    assert read_boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip() != ""
    assert not read_boot_id(tmp_path)


def test_machine_outside_of_a_job(simulated_system: SystemInfo) -> None:
    machine = collect_machine({}, collect_system=lambda: simulated_system)

    assert (machine.rank, machine.world_size, machine.nodes) == (None, 1, None)
    assert machine.recipe_cache is None
    assert machine.logs_variable is None
    assert machine.open_files[0] > 0


def test_variables_that_the_bridge_sets_are_not_the_users(make_system: Callable[..., SystemInfo]) -> None:
    environment: dict[str, str] = {}

    def collect_system() -> SystemInfo:
        environment.update(MASTER_ADDR="localhost", MASTER_PORT="12345")
        return make_system()

    machine = collect_machine(environment, collect_system=collect_system)

    assert machine.endpoint.address is None
