"""Changes of the environment by the import of the bridge, which launchers have to handle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

_CHANGES: Final = """
import json, os
import hpu_sim
import torch
before = dict(os.environ)
hpu_sim.activate(devices=2)
print(json.dumps({name: value for name, value in os.environ.items() if before.get(name) != value}))
"""


@pytest.fixture
def changes(output_of: Callable[..., str]) -> Callable[..., dict[str, str]]:
    """Return the variables that the first import sets or changes, without the simulator's own for child processes."""

    def run(**variables: str) -> dict[str, str]:
        changed = json.loads(output_of(_CHANGES, **variables))
        return {name: value for name, value in changed.items() if not name.startswith(("HPU_SIM_", "PYTHONPATH"))}

    return run


def test_a_plain_process_gets_a_rendezvous(changes: Callable[..., dict[str, str]]) -> None:
    """Its fixed port makes two jobs on one machine collide."""
    assert changes() == {
        "HABANA_PROFILE": "profile_api_light",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "12345",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def test_existing_values_are_kept(changes: Callable[..., dict[str, str]]) -> None:
    """The number of compile threads is the exception."""
    changed = changes(HABANA_PROFILE="0", MASTER_ADDR="there", MASTER_PORT="1", TORCHINDUCTOR_COMPILE_THREADS="7")

    assert changed == {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def test_a_rank_gets_its_module(changes: Callable[..., dict[str, str]]) -> None:
    """The local rank selects it, and the rank becomes the id in SynapseAI's logs. The launcher sets the rendezvous."""
    changed = changes(WORLD_SIZE="4", RANK="3", LOCAL_RANK="1")

    assert (changed["HLS_MODULE_ID"], changed["ID"]) == ("1", "3")
    assert "MASTER_PORT" not in changed


def test_a_rank_without_a_visible_module_cannot_import(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The import raises the bridge's error."""
    result = run_python(_CHANGES, WORLD_SIZE="2", RANK="1", LOCAL_RANK="1", HABANA_VISIBLE_MODULES="0")

    assert result.returncode == 1
    message = "There is not enough devices available for training: HABANA_VISIBLE_MODULES=0, local rank 1"
    assert f"AssertionError: {message}" in result.stderr
