"""Python runs this at its start where hpu-sim put this folder on PYTHONPATH: ``import torch`` then brings the device.

Torch from 2.5 on asks installed packages for devices by itself, unless it is told not to, and older ones do not. None
of them knows what a program means that imports the bridge before torch.
"""

# ruff: noqa: INP001, PTH100, PTH120 - the folder is a place on the path; pathlib would slow every start of Python

import importlib.machinery
import importlib.util
import os
import sys


def _wait_for_torch_or_bridge() -> None:
    # Also other environments' interpreters get this folder, as children of a simulated program.
    if os.environ.get("HPU_SIM_DEVICES") and importlib.util.find_spec("hpu_sim") is not None:
        from hpu_sim.autoload import autoload
        from hpu_sim.bridge_finder import wait_for_bridge
        from hpu_sim.post_import import after_import

        after_import("torch", autoload)
        wait_for_bridge()


def _run_the_hidden_one() -> None:
    # Python runs the first sitecustomize on its path only, and that must not cost the machine its own.
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


_wait_for_torch_or_bridge()
_run_the_hidden_one()
