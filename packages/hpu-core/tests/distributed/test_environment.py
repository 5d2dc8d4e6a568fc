"""Validation of the variables by which ranks find each other."""

import os
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    ids=[
        "empty",
        "redundant",
        "a rank",
        "one rank",
        "a node",
        "a node's rank",
        "a pod",
        "the first node",
        "group rank",
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
        ({"LOCAL_RANK": "8", "MASTER_PORT": "29500"}, 1, "LOCAL_RANK must be below `devices`, got 8"),
        ({**_NODE, "MASTER_PORT": "70000"}, 2, "MASTER_PORT must be from 1 to 65535, got 70000"),
        ({"MASTER_PORT": "0"}, 1, "MASTER_PORT must be from 1 to 65535, got 0"),
        ({**_NODE, "NODE_RANK": "9" * 5000}, 2, f"NODE_RANK must be an integer, got '{'9' * 80}...'"),
        ({**_NODE, "NODE_RANK": "one"}, 2, "NODE_RANK must be an integer, got 'one'"),
        (
            {**_NODE, "MASTER_PORT": "-1", "LOCAL_RANK": ""},
            2,
            "LOCAL_RANK must be an integer, got ''; MASTER_PORT must be an integer, got '-1'",
        ),
    ],
)
def test_every_problem_is_listed(variables: dict[str, str], num_nodes: int, problem: str) -> None:
    message = _problems(_plugins.LightningEnvironment(), variables, 8, num_nodes)

    assert message.startswith(f"the environment contradicts `devices=8`, `num_nodes={num_nodes}`: {problem}. ")


def test_on_several_machines_the_error_lists_what_to_set() -> None:
    message = _problems(_plugins.LightningEnvironment(), {}, 8, 2)

    assert message.endswith(
        "On each machine, set MASTER_ADDR (the address of the machine with NODE_RANK 0), MASTER_PORT (a port that is "
        "free there) and NODE_RANK (0, 1, ...)"
    )


def test_on_one_machine_the_error_says_to_unset_what_is_left_over() -> None:
    message = _problems(_plugins.LightningEnvironment(), {"NODE_RANK": "1"}, 8, 1)

    assert message.endswith("Unset what your shell or an earlier program left, or correct it")


_SLURM = {"SLURM_NTASKS": "16", "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}


@pytest.fixture
def slurm() -> Any:
    """SLURM's environment, whose constructor warns where `srun` is installed and not used."""
    with mock.patch("shutil.which", return_value=None):
        return _plugins.SLURMEnvironment()


def test_consistent_slurm_variables_pass(slurm: Any) -> None:
    assert _problems(slurm, _SLURM, 8, 2) == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"SLURM_NTASKS": "8"},
            "SLURMEnvironment has world size 8, not 8 x 2 = 16; SLURMEnvironment has rank 9, which must be below",
        ),
        ({"SLURM_LOCALID": "8"}, "SLURMEnvironment has local rank 8, which must be below `devices`"),
        ({"SLURM_NODEID": "2"}, "SLURMEnvironment has node rank 2, which must be below `num_nodes`"),
        ({"SLURM_LOCALID": "-1"}, "SLURMEnvironment has local rank -1, which must not be negative"),
        ({"SLURM_PROCID": "-2"}, "SLURMEnvironment has rank -2, which must not be negative"),
        ({"MASTER_PORT": "0"}, "SLURMEnvironment has port 0, which must be from 1 to 65535"),
        ({"MASTER_PORT": "tcp"}, "SLURMEnvironment cannot determine the rank of this process: invalid literal"),
        ({"SLURM_PROCID": "x"}, "SLURMEnvironment cannot determine the rank of this process: invalid literal"),
    ],
)
def test_contradictions_of_a_cluster_environment_are_listed(change: dict[str, str], problem: str, slurm: Any) -> None:
    message = _problems(slurm, {**_SLURM, **change}, 8, 2)

    assert f"`num_nodes=2`: {problem}" in message
    assert message.endswith("`devices` and `num_nodes` must be what the launcher was given")


@pytest.mark.parametrize("name", _SLURM)
def test_a_missing_variable_of_a_cluster_environment_is_named(name: str, slurm: Any) -> None:
    message = _problems(slurm, {key: value for key, value in _SLURM.items() if key != name}, 8, 2)

    assert f"SLURMEnvironment needs {name}, which is not set" in message


class _Own(_plugins.ClusterEnvironment):  # type: ignore[misc, name-defined] # The class depends on what is installed.
    """Cluster environment of a user, which takes the ranks that Lightning sets."""

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


def test_an_environment_that_takes_lightnings_ranks_passes() -> None:
    assert _problems(_Own(), {}, 8, 2) == ""


def test_a_users_environment_is_validated() -> None:
    assert "_Own has local rank 1, which must be below `devices`" in _problems(_Own(), {}, 1, 2)


_NAMES = ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK", "RANK", "WORLD_SIZE")
_TEXT = st.one_of(
    st.integers(-2, 70_000).map(str),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(["", "9" * 5000, "\u0663", "\u00b2", "1e3", "0x1", "tcp://10.0.0.1:29500"]),
)


@pytest.mark.filterwarnings("ignore:MASTER_")
@pytest.mark.parametrize("name", ["LightningEnvironment", "TorchElasticEnvironment"])
@given(
    variables=st.dictionaries(st.sampled_from(_NAMES), _TEXT), devices=st.integers(1, 8), num_nodes=st.integers(1, 2)
)
def test_any_environment_passes_or_is_an_error_that_names_it(
    name: str, variables: dict[str, str], devices: int, num_nodes: int
) -> None:
    """What passes has a rank in range, and no other exception than ValueError is raised."""
    environment = getattr(_plugins, name)()
    message = _problems(environment, variables, devices, num_nodes)

    assert len(message) < 2000
    if name == "TorchElasticEnvironment" and not message:
        assert 0 <= int(variables["RANK"]) < devices * num_nodes
        assert 0 <= int(variables["LOCAL_RANK"]) < devices
