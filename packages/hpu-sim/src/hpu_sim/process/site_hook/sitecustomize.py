"""Start-up hook of Python, found where hpu-sim put this folder on PYTHONPATH: ``import torch`` then brings the device.

It does what ``hpu_sim.pth`` does, for an hpu-sim that is not installed in a site folder.
"""

# ruff: noqa: INP001, PTH100, PTH120 - the folder is a path entry; pathlib would slow down every start of Python

import importlib.machinery
import importlib.util
import os
import sys


def _install_import_hooks() -> None:
    # Subprocesses may run interpreters of other environments, which have no hpu_sim.
    if os.environ.get("HPU_SIM_DEVICES") and importlib.util.find_spec("hpu_sim") is not None:
        from hpu_sim.process import startup

        startup.install()


def _run_next_sitecustomize() -> None:
    # Python imports only the first sitecustomize on its path. The machine's own must still run.
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


_install_import_hooks()
_run_next_sitecustomize()
