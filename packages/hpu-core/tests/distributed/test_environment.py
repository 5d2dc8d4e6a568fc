"""Validation of the variables by which ranks find each other."""

import os
from typing import Any
from unittest import mock

import pytest

from hpu_core import frameworks
from hpu_core.distributed.environment import validate_environment

_plugins = frameworks.current().fabric("plugins.environments")

_NODE = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "NODE_RANK": "1"}


def _problems(environment: Any, variables: dict[str, str], devices: int, num_nodes: int) -> str:
    """Return the error message, "" if there is none."""
    with mock.patch.dict(os.environ, variables, clear=True):
        try:
            validate_environment(environment, devices, num_nodes)
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
        ({**_NODE, "LOCAL_RANK": "7", "RANK": "15", "WORLD_SIZE": "16"}, 8, 2),
        # Kubeflow counts pods.
        ({**_NODE, "RANK": "1", "WORLD_SIZE": "2"}, 8, 2),
        ({"MASTER_PORT": "29500", "NODE_RANK": "0"}, 8, 2),
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "GROUP_RANK": "1"}, 8, 2),
    ],
)
def test_consistent_variables_pass(variables: dict[str, str], devices: int, num_nodes: int) -> None:
    assert _problems(_plugins.LightningEnvironment(), variables, devices, num_nodes) == ""


@pytest.mark.parametrize(
    ("variables", "num_nodes", "problem"),
    [
        ({}, 2, "NODE_RANK is not set; MASTER_ADDR is not set; MASTER_PORT is not set"),
        ({name: _NODE[name] for name in _NODE if name != "MASTER_ADDR"}, 2, "MASTER_ADDR is not set"),
        ({"NODE_RANK": "0"}, 2, "MASTER_PORT is not set"),
        ({"LOCAL_RANK": "1"}, 1, "MASTER_PORT is not set"),
        ({**_NODE, "NODE_RANK": "2"}, 2, "NODE_RANK must be below `num_nodes`, got 2"),
        ({"NODE_RANK": "1"}, 1, "NODE_RANK must be below `num_nodes`, got 1"),
        ({"LOCAL_RANK": "8", "MASTER_PORT": "29500"}, 1, "the local rank must be below `devices`, got 8"),
    ],
)
def test_every_problem_is_listed(variables: dict[str, str], num_nodes: int, problem: str) -> None:
    message = _problems(_plugins.LightningEnvironment(), variables, 8, num_nodes)

    assert message.startswith(f"the environment contradicts `devices=8`, `num_nodes={num_nodes}`: {problem}. ")
    assert "set MASTER_ADDR (the address of the machine with NODE_RANK 0), MASTER_PORT (a port that is free" in message


@pytest.mark.parametrize("ranks", [16, 8])
def test_a_launcher_must_start_as_many_ranks_as_asked_for(ranks: int) -> None:
    variables = {"SLURM_NTASKS": str(ranks), "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
    # Its constructor warns where `srun` is installed and not used.
    with mock.patch("shutil.which", return_value=None):
        message = _problems(_plugins.SLURMEnvironment(), variables, 8, 2)

    assert ("the launcher has started 8 ranks, not 8 x 2 = 16" in message) is (ranks == 8)
