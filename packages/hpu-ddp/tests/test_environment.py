"""What is missing, out of range or contradictory in the variables by which ranks find each other."""

import os
from typing import Any
from unittest import mock

import pytest

from hpu_core import frameworks
from hpu_ddp import _environment

_plugins = frameworks.current().fabric("plugins.environments")

_NODE = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "NODE_RANK": "1", "WORLD_SIZE": "16"}


def _problems(environment: Any, variables: dict[str, str], devices: int, num_nodes: int) -> str:
    """Return what the check finds, "" if nothing."""
    with mock.patch.dict(os.environ, variables, clear=True):
        try:
            _environment.check(environment, devices, num_nodes)
        except ValueError as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("variables", "devices", "num_nodes"),
    [
        ({}, 8, 1),
        ({"WORLD_SIZE": "8", "NODE_RANK": "0"}, 8, 1),
        ({"LOCAL_RANK": "3", "MASTER_PORT": "29500"}, 8, 1),
        ({"LOCAL_RANK": "0"}, 1, 1),
        (_NODE, 8, 2),
        ({**_NODE, "LOCAL_RANK": "7", "RANK": "15"}, 8, 2),
        ({"MASTER_PORT": "29500", "NODE_RANK": "0", "WORLD_SIZE": "16"}, 8, 2),
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "GROUP_RANK": "1", "WORLD_SIZE": "16"}, 8, 2),
        # What a first training in this process has left: Lightning takes WORLD_SIZE away.
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "NODE_RANK": "1", "LOCAL_RANK": "7", "RANK": "15"}, 8, 2),
    ],
    ids=["nothing", "the same", "a rank", "alone", "a node", "a node's rank", "the first node", "group rank", "again"],
)
def test_what_fits_together_passes(variables: dict[str, str], devices: int, num_nodes: int) -> None:
    """Nothing is refused that Lightning can train with."""
    assert _problems(_plugins.LightningEnvironment(), variables, devices, num_nodes) == ""


@pytest.mark.parametrize(
    ("variables", "num_nodes", "problem"),
    [
        ({}, 2, "NODE_RANK is not set; MASTER_ADDR is not set; MASTER_PORT is not set; WORLD_SIZE is not set"),
        ({name: _NODE[name] for name in _NODE if name != "WORLD_SIZE"}, 2, "WORLD_SIZE is not set"),
        ({name: _NODE[name] for name in _NODE if name != "MASTER_ADDR"}, 2, "MASTER_ADDR is not set"),
        ({"NODE_RANK": "0", "WORLD_SIZE": "16"}, 2, "MASTER_PORT is not set"),
        ({"LOCAL_RANK": "1"}, 1, "MASTER_PORT is not set"),
        ({**_NODE, "WORLD_SIZE": "8"}, 2, "WORLD_SIZE=8 is not 8 times 2"),
        ({**_NODE, "NODE_RANK": "2"}, 2, "NODE_RANK=2 is not below `num_nodes`"),
        ({"NODE_RANK": "1"}, 1, "NODE_RANK=1 is not below `num_nodes`"),
        ({"LOCAL_RANK": "8", "MASTER_PORT": "29500"}, 1, "LOCAL_RANK=8 is not below `devices`"),
        ({**_NODE, "MASTER_PORT": "70000"}, 2, "MASTER_PORT=70000 is no port from 1 to 65535"),
        ({"MASTER_PORT": "0"}, 1, "MASTER_PORT=0 is no port from 1 to 65535"),
        (
            {**_NODE, "LOCAL_RANK": "1", "RANK": "3"},
            2,
            "RANK=3 is not NODE_RANK times `devices` plus LOCAL_RANK, which is 9",
        ),
        ({**_NODE, "NODE_RANK": "one"}, 2, "NODE_RANK='one' is no number"),
        (
            {**_NODE, "MASTER_PORT": "-1", "WORLD_SIZE": ""},
            2,
            "MASTER_PORT='-1' is no number; WORLD_SIZE='' is no number",
        ),
    ],
)
def test_what_does_not_is_listed(variables: dict[str, str], num_nodes: int, problem: str) -> None:
    """The error holds every problem, with the variable and its value."""
    message = _problems(_plugins.LightningEnvironment(), variables, 8, num_nodes)

    fit = f"the environment and `devices=8`, `num_nodes={num_nodes}` do not fit together: {problem}. "
    assert message.startswith(fit)


def test_several_machines_are_told_what_to_set() -> None:
    """The error says what each variable means."""
    message = _problems(_plugins.LightningEnvironment(), {}, 8, 2)

    assert message.endswith(
        "On each machine, set MASTER_ADDR (the address of the machine with NODE_RANK 0), MASTER_PORT (a port that is "
        "free there), NODE_RANK (0, 1, ...) and WORLD_SIZE (all processes of all machines)"
    )


def test_one_machine_is_told_what_to_unset() -> None:
    """On one machine nothing needs to be set, so what is wrong is left over from something else."""
    message = _problems(_plugins.LightningEnvironment(), {"WORLD_SIZE": "16"}, 8, 1)

    assert message.endswith("Unset what your shell or an earlier program has left, or correct it")


_SLURM = {"SLURM_NTASKS": "16", "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}


@pytest.fixture
def slurm() -> Any:
    """SLURM's environment, whose constructor warns where `srun` is at hand and not used."""
    with mock.patch("shutil.which", return_value=None):
        return _plugins.SLURMEnvironment()


def test_a_managers_ranks_pass(slurm: Any) -> None:
    """What SLURM says fits what the Trainer was asked for."""
    assert _problems(slurm, _SLURM, 8, 2) == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"SLURM_NTASKS": "8"},
            "SLURMEnvironment counts 8 processes, not 8 times 2; SLURMEnvironment says rank 9 of 8",
        ),
        ({"SLURM_LOCALID": "8"}, "SLURMEnvironment says local rank 8, which is not below `devices`"),
        ({"SLURM_NODEID": "2"}, "SLURMEnvironment says node rank 2, which is not below `num_nodes`"),
        ({"SLURM_PROCID": "x"}, "SLURMEnvironment cannot tell this process's place: invalid literal"),
    ],
)
def test_a_managers_contradictions_are_listed(change: dict[str, str], problem: str, slurm: Any) -> None:
    """What SLURM says does not fit what the Trainer was asked for."""
    message = _problems(slurm, {**_SLURM, **change}, 8, 2)

    assert f"do not fit together: {problem}" in message
    assert message.endswith("`devices` and `num_nodes` must be what the processes were started with")


@pytest.mark.parametrize("name", _SLURM)
def test_a_managers_missing_variable_is_named(name: str, slurm: Any) -> None:
    """Where a variable is missing that SLURM sets, the error names it."""
    message = _problems(slurm, {key: value for key, value in _SLURM.items() if key != name}, 8, 2)

    assert f"SLURMEnvironment needs {name}, which is not set" in message


class _Own(_plugins.ClusterEnvironment):  # type: ignore[misc, name-defined] # The class depends on what is installed.
    """A cluster environment of a user's, which knows what it is told."""

    creates_processes_externally = False
    main_address = "10.0.0.1"
    main_port = 29500
    _rank = 0
    _world_size = 1

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._world_size

    def set_world_size(self, size: int) -> None:
        self._world_size = size

    def global_rank(self) -> int:
        return self._rank

    def set_global_rank(self, rank: int) -> None:
        self._rank = rank

    def local_rank(self) -> int:
        return 1

    def node_rank(self) -> int:
        return 1


def test_an_environment_that_learns_its_ranks_passes() -> None:
    """Lightning tells an environment its ranks, and one that has not been told yet is not held to what it says."""
    assert _problems(_Own(), {}, 8, 2) == ""


def test_the_users_environment_is_checked() -> None:
    """One that knows its local rank is held to it."""
    assert "_Own says local rank 1, which is not below `devices`" in _problems(_Own(), {}, 1, 2)
