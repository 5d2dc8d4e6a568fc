"""Hybrid sharding over two machines of two simulated devices each, which are network namespaces."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hpu_testing import Network, Program, free_port, machine_env
from hpu_testing.network import can_create_networks

from .conftest import OnRanks
from .modules import make_network, train_on_one_device

PROGRAM = Path(__file__).parent / "programs" / "hybrid_sharding.py"
HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "FSDP2")
STEPS, CLIP = 10, 0.5
_TIME_LIMIT = 300

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """Results of the program, by rank and strategy."""
    if not can_create_networks():
        pytest.skip("Requires: network namespaces (root, iproute2)")
    folder = tmp_path_factory.mktemp("two-machines")
    port = str(free_port())
    with Network(2) as network, ExitStack() as stack:
        rendezvous = {"MASTER_ADDR": network.address(0), "MASTER_PORT": port, "PT_HPU_LAZY_MODE": "0"}
        programs = []
        for machine in range(2):
            command = network.command(machine, [sys.executable, str(PROGRAM), str(machine), str(folder)])
            variables = machine_env(2, folder / f"machine-{machine}", **rendezvous)
            programs.append(stack.enter_context(Program(command, variables, folder)))
        done = [program.wait(_TIME_LIMIT) for program in programs]
    assert [program.code for program in done] == [0, 0], "\n".join(program.output for program in done)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(4)]


def _train_on_one_device() -> list[float]:
    return train_on_one_device("transformer", STEPS, gradient_clip_val=CLIP)


@pytest.mark.parametrize("name", HYBRID)
def test_losses_equal_those_of_one_device_and_of_ddp(name: str, trained: Any, on_ranks: OnRanks) -> None:
    [expected] = on_ranks(_train_on_one_device, count=1)

    for rank in trained:
        assert rank[name]["losses"] == pytest.approx(expected, abs=1e-5)
        assert rank[name]["losses"] == pytest.approx(rank["DDP"]["losses"], abs=1e-5)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize("name", HYBRID)
def test_a_machine_shards_and_gradients_are_reduced_between_machines(name: str, trained: Any) -> None:
    groups = [rank[name]["groups"] for rank in trained]

    assert groups == [[[0, 1], [0, 2]], [[0, 1], [1, 3]], [[2, 3], [0, 2]], [[2, 3], [1, 3]]]


@pytest.mark.parametrize("name", HYBRID)
def test_only_reduced_gradients_pass_the_cable(name: str, trained: Any) -> None:
    """Each machine sends as many bytes as its ranks' shards of the gradients have, and the packets' headers."""
    gradients = 4 * sum(parameter.numel() for parameter in make_network("transformer").parameters())

    for rank in trained:
        assert gradients <= rank[name]["sent"] < 1.3 * gradients
        assert rank[name]["sent"] < rank["FULL_SHARD"]["sent"] / 2
