"""What every session's environment has in common."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from sessions.packages import PACKAGES, closure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import nox

DEFAULT_ROW = "constraints/default.txt"
OLDEST_PYTHON = "3.10"


def install(session: nox.Session, *requirements: str) -> None:
    """Install requirements under the default row's constraints, packages of this repository editable from the tree.

    Args:
        session: The running session.
        requirements: As pip takes them: "pytest", "hpu-core[lightning]", "hpu-sim".
    """
    session.log("installing; the first time takes a minute or two where torch is needed")
    # To compile all of torch takes pip longer than to install it, and a tenth of that is ever imported. So Python
    # compiles what it imports, and has to be let keep it.
    session.install("--no-compile", "-c", DEFAULT_ROW, *from_tree(*requirements))
    session.env["PYTHONDONTWRITEBYTECODE"] = None


def from_tree(*requirements: str) -> list[str]:
    """Give what pip takes for requirements, packages of this repository and their siblings editable from the tree.

    Args:
        requirements: "pytest", "hpu-core[lightning]", "hpu-sim".
    """
    others: list[str] = []
    extras: dict[str, set[str]] = {}
    for text in requirements:
        requirement = Requirement(text)
        if requirement.name in PACKAGES:
            for package in closure([requirement.name], requirement.extras):
                extras.setdefault(package.name, set())
            extras[requirement.name] |= requirement.extras
        else:
            others.append(text)
    editable: list[str] = []
    for name, its in sorted(extras.items()):
        editable += ["-e", f"./{PACKAGES[name].path}" + (f"[{','.join(sorted(its))}]" if its else "")]
    return [*editable, *sorted(set(others))]


def install_alone(session: nox.Session, constraints: str, *requirements: str) -> None:
    """Install packages of this repository in an environment that several take in turn, in the place of other ones.

    What those brought from the index stays, so that gigabytes of torch are installed once.

    Args:
        session: The running session.
        constraints: The file that says which versions.
        requirements: As for `from_tree`.
    """
    session.run_install("python", "-m", "pip", "uninstall", "--quiet", "--yes", *PACKAGES, silent=True)
    # Kept by no cache, because a torch that has no CPU build comes with gigabytes of CUDA.
    session.install("--no-cache-dir", "-c", constraints, *from_tree(*requirements))


def chosen(session: nox.Session, names: Iterable[str]) -> list[str]:
    """Give those of some packages that the session's arguments name, in the packages' order; all without arguments."""
    names = list(names)
    if strangers := set(session.posargs).difference(names):
        session.error(f"arguments must be of {', '.join(names)}, got {', '.join(sorted(strangers))}")
    return [name for name in names if not session.posargs or name in session.posargs]


@functools.cache
def is_installed(python: str) -> bool:
    """Tell whether a Python is here and starts, which a version manager's stand-in for it may not."""
    command = shutil.which(f"python{python}")
    return command is not None and subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603 - what is on the path.


def own_machine(session: nox.Session) -> dict[str, str]:
    """Give the environment in which a session's simulated cards are its own, whatever else is simulated here.

    Without it, a card that another program has taken would be taken for this one, too: so it is on a machine.
    """
    return {"HPU_SIM_RUNTIME_DIR": os.environ.get("HPU_SIM_RUNTIME_DIR", str(Path(session.create_tmp()).resolve()))}


def whatever_others_warn_of() -> dict[str, str]:
    """Give the environment in which warnings are no errors, in the processes that tests start neither.

    For versions beside the default's: what an old Lightning has to say about a torch that is newer, or an old torch
    about NumPy, is no fault of these packages.
    """
    return {"PYTHONWARNINGS": "ignore", "PYTEST_ADDOPTS": "-W ignore"}


@contextlib.contextmanager
def removed_afterwards(session: nox.Session) -> Iterator[None]:
    """Remove a session's environment, of gigabytes, when it is done; with arguments somebody is at work on it."""
    try:
        yield
    finally:
        if not session.posargs:
            shutil.rmtree(session.virtualenv.location)
