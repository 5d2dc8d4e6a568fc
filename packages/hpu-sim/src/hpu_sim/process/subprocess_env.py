"""Environment variables that give a subprocess the simulated machine of its parent."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.device.config import SimConfig


def variables(config: SimConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which ``import torch`` brings a machine's device in a subprocess.

    An installed hpu-sim loads the device by the variables of the machine alone. The site hook on ``PYTHONPATH`` loads
    it where Python does not read ``hpu_sim.pth``.
    """
    return {**config.environment(), "PYTHONPATH": with_hook(environment.get("PYTHONPATH", ""))}


def with_hook(python_path: str) -> str:
    """Return a ``PYTHONPATH`` that starts with the folder of the site hook."""
    folder = str(hook_folder())
    entries = [entry for entry in python_path.split(os.pathsep) if entry and entry != folder]
    return os.pathsep.join([folder, *entries])


def hook_folder() -> Path:
    """Return the folder of the site hook, a ``sitecustomize`` module."""
    return Path(str(resources.files("hpu_sim.process").joinpath("site_hook")))
