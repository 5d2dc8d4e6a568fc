"""How the processes of a training are started, by whom, and what they are told."""

import json
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hpu_core import frameworks
from hpu_sim.testing import CompletedProgram, Program, free_port, machine_env

from .conftest import PROGRAMS, Run

_STEPS = 12


def _reports(done: CompletedProgram) -> list[dict[str, Any]]:
    """Return what each process that got to the end said, by rank."""
    assert done.code == 0, done.output
    assert done.leaked_pids == ()
    reports = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
    return sorted(reports, key=lambda report: int(report["rank"]))


def _check_trained(reports: list[dict[str, Any]], ranks: int) -> None:
    """Check that as many ranks have trained, each on its own card, and have the same weights."""
    assert [report["rank"] for report in reports] == list(range(ranks))
    assert [report["steps"] for report in reports] == [_STEPS] * ranks
    assert len({report["weights"] for report in reports}) == 1


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the ranks say of a program that was started like any other."""
    folder = tmp_path_factory.mktemp("plain")
    command = [sys.executable, str(PROGRAMS / "train.py")]
    with Program(command, machine_env(2, folder / "cards"), folder) as running:
        return _reports(running.wait(60))


def test_a_script_starts_itself_again(plain: list[dict[str, Any]]) -> None:
    """By default, a script is started once, and all ranks train."""
    _check_trained(plain, 2)


def test_each_rank_has_its_own_card(plain: list[dict[str, Any]]) -> None:
    """The starting process is rank 0 and has the first card."""
    assert [(report["module_id"], report["open"]) for report in plain] == [("0", True), ("1", True)]


def test_the_ranks_meet_at_a_free_port(plain: list[dict[str, Any]]) -> None:
    """The port that a bridge loaded by `import torch` leaves in the environment is not the one."""
    ports = {report["port"] for report in plain}

    assert len(ports) == 1
    assert "12345" not in ports


def test_a_port_of_the_users_is_used(run: Run) -> None:
    """One that was set when the program started stays."""
    port = str(free_port())
    reports = _reports(run("train.py", MASTER_PORT=port))

    assert [report["port"] for report in reports] == [port, port]


def test_visible_modules_are_honoured(run: Run) -> None:
    """Rank 0 opens the first card that the user names, rank 1 the second."""
    reports = _reports(run("train.py", devices=4, HABANA_VISIBLE_MODULES="3,1"))

    assert [report["module_id"] for report in reports] == ["3", "1"]


def test_processes_can_be_spawned(run: Run, plain: list[dict[str, Any]], tmp_path: Path) -> None:
    """With "spawn" the starting process trains nothing, opens no card and has the weights afterwards."""
    done = run("train.py", "--start-method", "spawn")

    assert done.code == 0, done.output
    (report,) = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
    assert not report["open"]
    # The simulator keeps a lock for each card that has been opened.
    assert len(list((tmp_path / "cards").glob("device-*.lock"))) == 2
    assert report["weights"] == plain[0]["weights"]


def test_a_notebook_can_spawn(run: Run) -> None:
    """In an interactive interpreter, which a notebook has, "spawn" is allowed."""
    done = run("train.py", "--start-method", "spawn", interpreter=(sys.executable, "-i"))

    assert done.code == 0, done.output
    assert '"open": false' in done.output


# A cell that defines its module, as notebooks do; its class cannot be imported by a new process.
_CELL = """
import os
import torch
from lightning import LightningModule, Trainer

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def on_train_start(self):
        os.write(1, f"rank {self.global_rank} uses module {os.environ['HLS_MODULE_ID']}\\n".encode())

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def fit():
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="hpu", devices=2, max_steps=2, **options)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=2))
    print("trained with", trainer.num_devices, trainer.strategy._start_method)

fit()
fit()
"""


@pytest.mark.skipif(frameworks.current().name != "lightning", reason="Requires: lightning")
def test_a_notebook_forks_by_default(tmp_path: Path) -> None:
    """`devices=2` starts the ranks of a module that the notebook defines, as often as the notebook likes."""
    cell = tmp_path / "cell.py"
    cell.write_text(_CELL)
    with Program([sys.executable, "-i", str(cell)], machine_env(2, tmp_path / "cards"), tmp_path) as running:
        done = running.wait(60)

    assert done.code == 0, done.output
    assert done.output.count("trained with 2 fork") == 2


@pytest.mark.skipif(frameworks.current().name != "lightning", reason="Requires: lightning")
def test_listed_cards_are_used(tmp_path: Path) -> None:
    """Rank 0 opens the first card that `devices` lists; the list counts the entries of HABANA_VISIBLE_MODULES."""
    script = tmp_path / "train.py"
    script.write_text(_CELL.replace("devices=2", "devices=[2, 0]"))
    environment = machine_env(4, tmp_path / "cards", HABANA_VISIBLE_MODULES="3,2,1")
    with Program([sys.executable, str(script)], environment, tmp_path) as running:
        done = running.wait(60)

    assert done.code == 0, done.output
    # Both trainings of the script, the second in the processes of the first.
    assert sorted(re.findall(r"rank \d uses module \d", done.output)) == [
        *["rank 0 uses module 1"] * 2,
        *["rank 1 uses module 3"] * 2,
    ]


def test_torchrun_starts_ranks(run: Run) -> None:
    """Torchrun's processes find their places and their port."""
    torchrun = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    )

    _check_trained(_reports(run("train.py", interpreter=torchrun)), 2)


def _started_apart(
    program: Callable[..., Program], places: list[dict[str, str]], *arguments: str
) -> list[CompletedProgram]:
    """Start a program once for each of some environments, at the same time, and wait for all."""
    with ExitStack() as running:
        programs = [running.enter_context(program("train.py", *arguments, **place)) for place in places]
        return [each.wait(60) for each in programs]


def test_a_person_may_start_each_rank(program: Callable[..., Program]) -> None:
    """With LOCAL_RANK and a port, every process is a rank and starts no other."""
    place = {"MASTER_PORT": str(free_port())}
    done = _started_apart(program, [{**place, "LOCAL_RANK": str(rank)} for rank in range(2)])

    _check_trained([report for each in done for report in _reports(each)], 2)


def test_slurm_starts_ranks(program: Callable[..., Program]) -> None:
    """SLURM's variables say which rank a process is; the port follows from the job."""
    job = {"SLURM_JOB_ID": str(free_port() % 10000), "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2"}
    place = {
        **job,
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "localhost",
    }
    ranks = [{**place, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]

    _check_trained([report for each in _started_apart(program, ranks) for report in _reports(each)], 2)


def test_several_machines_train_together(program: Callable[..., Program]) -> None:
    """With the three variables of the documentation, the same script on two machines is one job of four ranks."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    # Two machines have cards of the same names; here, both are one machine and must not take each other's.
    nodes = [{**place, "NODE_RANK": str(node), "HPU_SIM_RUNTIME_DIR": f"cards-{node}"} for node in range(2)]
    done = _started_apart(program, nodes, "--num-nodes", "2")

    reports = [report for each in done for report in _reports(each)]
    _check_trained(sorted(reports, key=lambda report: int(report["rank"])), 4)
    assert [report["module_id"] for report in reports] == ["0", "1", "0", "1"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_contradiction_is_one_error_on_each_rank(rank: int, run: Run) -> None:
    """Every process says what does not fit together, before it meets another or opens a card."""
    done = run("train.py", LOCAL_RANK=str(rank), WORLD_SIZE="8", NODE_RANK="1", MASTER_PORT="29500")

    assert done.code == 1
    assert "ValueError: the environment contradicts `devices=2`, `num_nodes=1`: NODE_RANK must be below" in done.output
    assert "got 1; WORLD_SIZE must be 2 x 1 = 2, got 8" in done.output
    assert "simulated card" not in done.output


def test_missing_variables_are_one_error(run: Run) -> None:
    """The error lists all that several machines need, and nothing has been started."""
    done = run("train.py", "--num-nodes", "2")

    assert done.code == 1
    assert "NODE_RANK is not set; MASTER_ADDR is not set; MASTER_PORT is not set. On each machine, set" in done.output
    assert done.output.count("Traceback") == 1


def test_more_devices_than_cards_are_refused(run: Run) -> None:
    """A machine with one card cannot train two ranks, and no process is started for the second."""
    done = run("train.py", devices=1)

    assert done.code == 1
    assert "`devices` must be at most 1, the number of cards that can be used here, got 2" in done.output
    assert "simulated card" not in done.output


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_a_card_must_not_be_open_in_the_starting_process(start_method: str, run: Run) -> None:
    """A process that trains nothing would keep the card from one that does; the error says so."""
    done = run("train.py", "--start-method", start_method, "--open-early")

    assert done.code == 1
    assert (
        "RuntimeError: this process has opened a card and would keep it from the ranks that it launches" in done.output
    )


@pytest.mark.skipif(find_spec("pytorch_lightning") is None, reason="Requires: pytorch-lightning")
def test_the_other_framework_trains(run: Run) -> None:
    """The same program trains with `pytorch_lightning`."""
    _check_trained(_reports(run("train.py", HPU_CORE_FRAMEWORK="pytorch_lightning")), 2)
