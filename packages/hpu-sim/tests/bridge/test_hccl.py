"""Environment of a rank, and collectives between ranks."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pytest
import torch.distributed as dist
from habana_frameworks.torch.distributed import hccl
from torch._C._distributed_c10d import ProcessGroupGloo

from hpu_testing import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PROGRAM: Final = Path(__file__).parent / "collectives.py"
_CHECKS: Final = [
    node.name
    for node in ast.parse(_PROGRAM.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]
_RANKS: Final = 2
_TIME_LIMIT: Final = 300.0

_CONCERNED: Final = (
    "GLOO_SOCKET_IFNAME",
    "HABANA_VISIBLE_MODULES",
    "HLS_MODULE_ID",
    "ID",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "RANK",
    "WORLD_SIZE",
)


@pytest.fixture
def environment() -> Iterator[Callable[[], dict[str, str]]]:
    """Return a function that returns the environment variables of a rank, which are unset at first."""
    with mock.patch.dict(os.environ):
        for name in _CONCERNED:
            os.environ.pop(name, None)
        yield lambda: {name: os.environ[name] for name in _CONCERNED if name in os.environ}


_RENDEZVOUS: Final = {"MASTER_ADDR": "localhost", "MASTER_PORT": "12345"}
_OPEN_MPI: Final = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
_TORCH: Final = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}

# What is set before, the arguments, what is returned, and what is set in addition.
_CASES: Final[dict[str, tuple[dict[str, str], dict[str, int], tuple[int, int, int], dict[str, str]]]] = {
    "nothing": ({}, {}, (1, -1, -1), _RENDEZVOUS),
    "a rendezvous": ({"MASTER_ADDR": "there", "MASTER_PORT": "1"}, {}, (1, -1, -1), {}),
    "arguments": (
        {},
        {"world_size": 4, "rank": 3, "local_rank": 1},
        (4, 3, 1),
        {**_TORCH, "HLS_MODULE_ID": "1", "ID": "3"},
    ),
    "some arguments": ({}, {"world_size": 4, "rank": 3}, (1, -1, -1), _RENDEZVOUS),
    "torch's variables": (_TORCH, {}, (4, 3, 1), {"HLS_MODULE_ID": "1", "ID": "3"}),
    "torch's variables and arguments": (
        _TORCH,
        {"world_size": 2, "rank": 1, "local_rank": 0},
        (2, 1, 0),
        {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0", "HLS_MODULE_ID": "0", "ID": "1"},
    ),
    "some of torch's variables": (
        {"WORLD_SIZE": "4", "RANK": "3"},
        {},
        (4, 3, -1),
        {**_RENDEZVOUS, "ID": "3"},
    ),
    "Open MPI's variables": (
        _OPEN_MPI,
        {},
        (4, 3, 1),
        {**_TORCH, **_RENDEZVOUS, "HLS_MODULE_ID": "1", "ID": "3"},
    ),
    "some of Open MPI's variables": (
        {"OMPI_COMM_WORLD_SIZE": "4"},
        {},
        (1, -1, -1),
        _RENDEZVOUS,
    ),
    "one rank": (
        {},
        {"world_size": 1, "rank": 0, "local_rank": 0},
        (1, 0, 0),
        {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "ID": "0"},
    ),
    "a chosen module": ({**_TORCH, "HLS_MODULE_ID": "7"}, {}, (4, 3, 1), {"ID": "3"}),
    "visible modules": ({**_TORCH, "HABANA_VISIBLE_MODULES": "4,6"}, {}, (4, 3, 1), {"HLS_MODULE_ID": "6", "ID": "3"}),
}


@pytest.mark.parametrize("case", _CASES)
def test_initializing_sets_the_environment_of_a_rank(case: str, environment: Callable[[], dict[str, str]]) -> None:
    before, arguments, returned, added = _CASES[case]
    os.environ.update(before)

    assert hccl.initialize_distributed_hpu(**arguments) == returned
    assert environment() == {**before, **added}
    assert not dist.is_initialized()


@pytest.mark.needs_torch("2.1", "devices for which it knows a backend")
def test_the_backend_is_registered_for_hpu() -> None:
    """Torch selects it for hpu tensors."""
    assert "hccl" in dist.Backend.backend_list
    assert dist.Backend.default_device_backend_map["hpu"] == "hccl"
    assert dist.Backend.backend_capability["hccl"] == ["hpu"]


@pytest.mark.parametrize(
    ("host", "address"),
    # None is gloo's default.
    [("10.0.0.1", "10.0.0.2"), (None, None), ("localhost", None), ("127.0.0.1", None), ("no-such-host.invalid", None)],
)
def test_gloo_uses_the_address_that_reaches_the_first_machine(
    host: str | None, address: str | None, environment: Callable[[], dict[str, str]]
) -> None:
    """GLOO_SOCKET_IFNAME is not needed."""
    if host is not None:
        os.environ["MASTER_ADDR"] = host
    with mock.patch.object(socket, "socket") if address else contextlib.nullcontext() as made:
        if made is not None:
            made.return_value.__enter__.return_value.getsockname.return_value = (address, 4711)

        assert hccl._routable_address() == address


def test_gloo_uses_the_named_interfaces(environment: Callable[[], dict[str, str]]) -> None:
    os.environ.update({"MASTER_ADDR": "10.0.0.1", "GLOO_SOCKET_IFNAME": "eth0,eth1"})
    gloo = mock.Mock(spec=ProcessGroupGloo)

    hccl._gloo_devices(gloo)

    assert gloo.create_device.call_args_list == [mock.call(interface="eth0"), mock.call(interface="eth1")]


@pytest.fixture(scope="module", params=["now", "later"])
def failures(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    start_python: Callable[..., subprocess.Popen[str]],
) -> list[dict[str, str]]:
    """Return the failures of each of two ranks, by check, where kernels run now and where they run later."""
    machine = {
        "HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards")),
        "HPU_SIM_DEVICES": str(_RANKS),
        "PT_HPU_LAZY_MODE": "1",
        "HPU_SIM_ASYNC": "1" if request.param == "later" else "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(_RANKS),
    }
    ranks = [start_python(_PROGRAM, **machine, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(_RANKS)]
    try:
        outputs = [rank.communicate(timeout=_TIME_LIMIT) for rank in ranks]
    except subprocess.TimeoutExpired:
        for rank in ranks:
            rank.kill()
        raise RuntimeError(f"the ranks hang: {[rank.communicate() for rank in ranks]}") from None
    assert [rank.returncode for rank in ranks] == [0] * _RANKS, outputs
    # Above it, gloo of torch 2.9 tells of its connections.
    found: list[dict[str, Any]] = [json.loads(output.splitlines()[-1]) for output, _ in outputs]
    assert all(sorted(report) == sorted(_CHECKS) for report in found)
    return found


@pytest.mark.parametrize("check", _CHECKS)
def test_two_ranks_work_together(check: str, failures: list[dict[str, str]]) -> None:
    """Each function of collectives.py checks one behaviour on both ranks."""
    assert [report[check] for report in failures] == [""] * _RANKS
