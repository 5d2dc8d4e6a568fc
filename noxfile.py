"""Everything that is run on this repository, here and in CI; `nox -l` lists it, and sessions/ holds it.

Nothing is listed twice: packages are read from packages/, their siblings from their own requirements, groups from
the pyprojects and versions from compat.toml by way of constraints/default.txt.

`nox -R -s tests` reuses environments without installing again. Only nox itself is needed; packaging comes with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
# pip, so that the settings a user has made for pip (an index, a proxy, a cache) hold in every session.
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"

# nox reads this file by its path, so that the folder beside it can be imported only if that is said.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from sessions import (  # noqa: E402 - the path comes first.
    checks,
    distributions,
    docs,
    elsewhere,
    gaudi,
    matrix,
    releases,
    running,
    testing,
    trials,
)

# A session is known to nox as soon as its module is imported.
__all__ = [
    "checks",
    "distributions",
    "docs",
    "elsewhere",
    "gaudi",
    "matrix",
    "releases",
    "running",
    "testing",
    "trials",
]
