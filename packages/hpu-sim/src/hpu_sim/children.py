"""What a child process needs in its environment to have the same simulated machine as its parent."""

from __future__ import annotations

import importlib.metadata
import os
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.config import SimConfig

# The first torch that asks installed packages for devices.
_AUTOLOADING_TORCH: Final = (2, 5)
_ENTRY_POINT_GROUP: Final = "torch.backends"


def variables(config: SimConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make ``import torch`` bring this machine's device in a child process.

    Where torch loads the device by itself, the machine's description is enough. Elsewhere a folder goes first on
    ``PYTHONPATH``, with which Python waits for torch to be imported.

    Args:
        config: The machine.
        environment: Variables that the child gets otherwise.
    """
    described = config.environment()
    if not _is_autoloaded(environment):
        described["PYTHONPATH"] = _with_hook(environment.get("PYTHONPATH", ""))
    return described


def _with_hook(python_path: str) -> str:
    folder = str(hook_folder())
    entries = [entry for entry in python_path.split(os.pathsep) if entry and entry != folder]
    return os.pathsep.join([folder, *entries])


def hook_folder() -> Path:
    """Return the folder that makes Python wait for torch."""
    return Path(str(resources.files("hpu_sim").joinpath("site_hook")))


def _is_autoloaded(environment: Mapping[str, str]) -> bool:
    if environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        return False
    # A copy of this package that is only on the path, not installed, has no entry point.
    installed = any(point.name == "hpu_sim" for point in importlib.metadata.entry_points(group=_ENTRY_POINT_GROUP))
    return installed and _torch_version() >= _AUTOLOADING_TORCH


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("torch"))[:2])
