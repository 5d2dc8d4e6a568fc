"""Environments of the sessions: what is installed, and which variables are set."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from sessions.packages import PACKAGES, group, resolve_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import nox

DEFAULT_CONSTRAINTS = "constraints/default.txt"
MIN_PYTHON = "3.10"
# Variables that make warnings no errors, also in the processes that tests start: old versions of Lightning and torch
# warn about newer versions of their own requirements.
WARNINGS_IGNORED = {"PYTHONWARNINGS": "ignore", "PYTEST_ADDOPTS": "-W ignore"}


def install(session: nox.Session, *requirements: str, options: Sequence[str] = ()) -> None:
    """Install pip requirements under the default constraints, packages of this repository as editable."""
    session.log("installing; the first time takes a minute or two where torch is needed")
    # pip takes longer to compile all of torch than to install it, and a tenth is ever imported. Python compiles what it
    # imports, and must be allowed to keep it.
    session.install("--no-compile", *options, "-c", DEFAULT_CONSTRAINTS, *editable_requirements(*requirements))
    session.env["PYTHONDONTWRITEBYTECODE"] = None


def share_libraries(session: nox.Session) -> None:
    """Let an environment import the group "libraries" from a folder that all suites share, and run its commands.

    Installing torch takes longer than most suites, and so does compiling it at the first import.
    """
    requirements = group("libraries")
    version = _query(session, "sys.version")
    stamp = "\n".join([version, *requirements, Path(DEFAULT_CONSTRAINTS).read_text(encoding="utf-8")])
    # Frames below a folder of this name are not the user's, for these packages and for torch.
    folder = Path(session.virtualenv.location).resolve().with_name("libraries") / "site-packages"
    stamp_file = folder.with_name("stamp.txt")
    if not stamp_file.exists() or stamp_file.read_text(encoding="utf-8") != stamp:
        session.log("installing what all suites share; this takes a minute or two")
        new = folder.with_name("new")
        shutil.rmtree(new, ignore_errors=True)
        session.install("--no-compile", "-c", DEFAULT_CONSTRAINTS, "--target", str(new), *requirements)
        # `nox -R` installs nothing.
        if new.exists():
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
            stamp_file.write_text(stamp, encoding="utf-8")
    add_startup_line(session, "libraries", str(folder))
    for command in (folder / "bin").glob("*"):
        # The first line names the Python that installed the command.
        _, _, code = command.read_text(encoding="utf-8").partition("\n")
        own = Path(session.bin, command.name)
        own.write_text(f"#!{session.bin}/python\n{code}", encoding="utf-8")
        own.chmod(0o755)


def add_startup_line(session: nox.Session, name: str, line: str) -> None:
    """Have every Python process of an environment read a line when it starts: a folder to import from, or an import."""
    site_packages = _query(session, "sysconfig.get_path('purelib')")
    Path(site_packages, f"{name}.pth").write_text(f"{line}\n", encoding="utf-8")


def _query(session: nox.Session, expression: str) -> str:
    """Return the value of an expression of `sys` and `sysconfig` in an environment."""
    # `session.run` runs nothing with `nox --install-only`, and `session.run_install` nothing with `nox -R`.
    command = [f"{session.bin}/python", "-c", f"import sys, sysconfig; print({expression})"]
    return subprocess.check_output(command, text=True).strip()  # noqa: S603 - of this session.


def editable_requirements(*requirements: str) -> list[str]:
    """Return pip arguments for requirements, packages of this repository and those that they require as editable."""
    others: list[str] = []
    extras: dict[str, set[str]] = {}
    for text in requirements:
        requirement = Requirement(text)
        if requirement.name in PACKAGES:
            for package in resolve_packages([requirement.name], requirement.extras):
                extras.setdefault(package.name, set())
            extras[requirement.name] |= requirement.extras
        else:
            others.append(text)
    editable: list[str] = []
    for name, names in sorted(extras.items()):
        editable += ["-e", f"./{PACKAGES[name].path}" + (f"[{','.join(sorted(names))}]" if names else "")]
    return [*editable, *sorted(set(others))]


def reinstall(session: nox.Session, constraints: str, *requirements: str) -> None:
    """Install packages of this repository in place of those that an environment has.

    Requirements from the index stay, so that gigabytes of torch are installed once.
    """
    uninstall_packages(session)
    # Not cached, because a torch without a CPU build comes with gigabytes of CUDA.
    session.install("--no-cache-dir", "-c", constraints, *editable_requirements(*requirements))


def uninstall_packages(session: nox.Session) -> None:
    """Remove the packages of this repository from an environment."""
    session.run_install("python", "-m", "pip", "uninstall", "--quiet", "--yes", *PACKAGES, silent=True)


def select(session: nox.Session, names: Iterable[str]) -> list[str]:
    """Return the names that the session's arguments select, in the given order; all without arguments."""
    names = list(names)
    if unknown := set(session.posargs).difference(names):
        session.error(f"arguments must be of {', '.join(names)}, got {', '.join(sorted(unknown))}")
    return [name for name in names if not session.posargs or name in session.posargs]


@functools.cache
def is_installed(python: str) -> bool:
    """Return whether a Python is here and starts; a version manager's shim for it may not start."""
    command = shutil.which(f"python{python}")
    return command is not None and subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603 - what is on the path.


def isolated_sim_env(session: nox.Session) -> dict[str, str]:
    """Return variables that give a session simulated cards of its own.

    Without them, a card that another program on this machine holds is taken for this session too.
    """
    return {"HPU_SIM_RUNTIME_DIR": os.environ.get("HPU_SIM_RUNTIME_DIR", str(Path(session.create_tmp()).resolve()))}


@contextlib.contextmanager
def temporary_venv(session: nox.Session) -> Iterator[None]:
    """Remove a session's environment afterwards, because it takes gigabytes; keep it if the session has arguments."""
    try:
        yield
    finally:
        if not session.posargs:
            shutil.rmtree(session.virtualenv.location)
