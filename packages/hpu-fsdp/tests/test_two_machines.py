"""Hybrid sharding over two machines of two simulated devices each."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from hpu_testing import Program, free_port, machine_env

from .conftest import OnRanks
from .modules import train_on_one_device

PROGRAM = Path(__file__).parent / "programs" / "hybrid_sharding.py"
STEPS = 10


def _train_on_one_device() -> list[float]:
    return train_on_one_device(steps=STEPS)


@pytest.mark.slow
def test_a_machine_shards_and_gradients_are_reduced_between_machines(on_ranks: OnRanks, tmp_path: Path) -> None:
    """The losses are those of one device."""
    [expected] = on_ranks(_train_on_one_device, count=1)
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "PT_HPU_LAZY_MODE": "0"}
    with ExitStack() as stack:
        programs = []
        for machine in range(2):
            variables = machine_env(2, tmp_path / f"cards-{machine}", **rendezvous, NODE_RANK=str(machine))
            command = [sys.executable, str(PROGRAM), str(tmp_path), str(STEPS)]
            programs.append(stack.enter_context(Program(command, variables, tmp_path, preloaded=True)))
        done = [program.wait(300) for program in programs]
    assert [program.code for program in done] == [0, 0], "\n".join(program.output for program in done)

    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(4)]
    for rank in ranks:
        assert rank["losses"] == pytest.approx(expected, abs=1e-5)
    groups = [[[0, 1], [0, 2]], [[0, 1], [1, 3]], [[2, 3], [0, 2]], [[2, 3], [1, 3]]]
    assert [rank["groups"] for rank in ranks] == [[each] * len(ranks[0]["groups"]) for each in groups]
