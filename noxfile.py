"""Sessions for every check and task of this repository, here and in CI; tools/sessions/ defines them.

Packages are read from packages/, the packages that each requires from its pyproject.toml, groups of tools from the
root's, and versions from compat.toml by way of constraints/default.txt.

`nox -R -s tests` reuses environments without installing again. Only nox itself is needed; packaging comes with it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
# pip, so that a user's settings for pip (an index, a proxy, a cache) hold in every session.
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"

# nox loads this file by its path, so no folder of this repository is on Python's path.
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

import sessions  # noqa: E402 - the path comes first.

# Importing a module registers its sessions.
for module in pkgutil.iter_modules(sessions.__path__):
    importlib.import_module(f"sessions.{module.name}")
