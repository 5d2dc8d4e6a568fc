"""What a child process needs in its environment to have the same simulated machine as its parent."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.config import SimConfig


def variables(config: SimConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make ``import torch`` bring this machine's device in a child process.

    A folder goes first on ``PYTHONPATH``, with which Python waits for torch, or the bridge, to be imported. Torch from
    2.5 on would load the device by the machine's description alone, but for programs that import the bridge first.

    Args:
        config: The machine.
        environment: Variables that the child gets otherwise.
    """
    return {**config.environment(), "PYTHONPATH": with_hook(environment.get("PYTHONPATH", ""))}


def with_hook(python_path: str) -> str:
    """Return a ``PYTHONPATH`` with the folder that makes Python wait for torch and the bridge in front, once."""
    folder = str(hook_folder())
    entries = [entry for entry in python_path.split(os.pathsep) if entry and entry != folder]
    return os.pathsep.join([folder, *entries])


def hook_folder() -> Path:
    """Return the folder that makes Python wait for torch and the bridge."""
    return Path(str(resources.files("hpu_sim").joinpath("site_hook")))
