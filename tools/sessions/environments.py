"""Environments of the sessions: what is installed, and which variables are set."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from sessions.packages import PACKAGES, ROOT, group, resolve_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import nox

DEFAULT_CONSTRAINTS = "constraints/default.txt"
MIN_PYTHON = "3.10"
# Variables that make warnings no errors, also in the processes that tests start: old versions of Lightning and torch
# warn about newer versions of their own requirements.
WARNINGS_IGNORED = {"PYTHONWARNINGS": "ignore", "PYTEST_ADDOPTS": "-W ignore"}


def install(session: nox.Session, *requirements: str) -> None:
    """Install pip requirements under the default constraints, packages of this repository as editable."""
    _install(session, *editable_requirements(*requirements))


def install_shared(session: nox.Session, *requirements: str) -> None:
    """Install pip requirements, packages of this repository and libraries from the folders that all suites share."""
    share_libraries(session)
    share_packages(session, _extras_of_packages(requirements))
    # pip finds the packages installed.
    _install(session, *requirements)


def _install(session: nox.Session, *arguments: str) -> None:
    session.log("installing; the first time takes a minute or two where torch is needed")
    # pip takes longer to compile all of torch than to install it, and a tenth is ever imported. Python compiles what it
    # imports, and must be allowed to keep it.
    session.install("--no-compile", "-c", DEFAULT_CONSTRAINTS, *arguments)
    session.env["PYTHONDONTWRITEBYTECODE"] = None


def share_libraries(session: nox.Session) -> None:
    """Let an environment import the group "libraries" from a folder that all suites share, and run its commands.

    Installing torch takes longer than most suites, and so does compiling it at the first import.
    """
    requirements = group("libraries")
    constraints = Path(DEFAULT_CONSTRAINTS).read_text(encoding="utf-8")
    # Frames below a folder of this name are not the user's, for these packages and for torch.
    folder = _shared_folder(session, "libraries") / "site-packages"
    with _renewed(session, folder, "\n".join([*requirements, constraints])) as new:
        if new is not None:
            session.log("installing what all suites share; this takes a minute or two")
            session.install("--no-compile", "-c", DEFAULT_CONSTRAINTS, "--target", str(new), *requirements)
    add_startup_line(session, "libraries", str(folder))
    for command in (folder / "bin").glob("*"):
        # The first line names the Python that installed the command.
        _, _, code = command.read_text(encoding="utf-8").partition("\n")
        _write_command(session, command.name, code)


def share_packages(session: nox.Session, names: Iterable[str] = ()) -> None:
    """Install this repository's packages once for all suites, as editable, and let an environment have some of them.

    Args:
        session: Session whose environment has the group "libraries", which has the build backend.
        names: Distributions.
    """
    folder = _shared_folder(session, "packages") / "editable"
    patterns = ("pyproject.toml", "src/*/__about__.py")
    files = sorted(file for pattern in patterns for file in ROOT.glob(f"packages/*/{pattern}"))
    content = "\n".join(file.read_text(encoding="utf-8") for file in files)
    with _renewed(session, folder, content) as new:
        if new is not None:
            sources = [str(package.path) for package in PACKAGES.values()]
            session.run_install("python", "tools/editable_installs.py", str(new), *sources)
    own = [folder / PACKAGES[name].path.name for name in names]
    # As site-packages, so that Python reads the files of startup lines in these folders as well.
    lines = "; ".join(f"site.addsitedir({str(each)!r})" for each in own)
    add_startup_line(session, "packages", f"import site; {lines}")
    for distribution in importlib.metadata.distributions(path=[*map(str, own)]):
        for command in distribution.entry_points.select(group="console_scripts"):
            code = f"import sys\nfrom {command.module} import {command.attr}\nsys.exit({command.attr}())\n"
            _write_command(session, command.name, code)


def _shared_folder(session: nox.Session, name: str) -> Path:
    return Path(session.virtualenv.location).resolve().with_name(name)


@contextlib.contextmanager
def _renewed(session: nox.Session, folder: Path, content: str) -> Iterator[Path | None]:
    """Return the context that fills a new folder in place of `folder`, unless that has the content for this Python."""
    stamp, stamp_file = f"{_query(session, 'sys.version')}\n{content}", folder.with_name("stamp.txt")
    if stamp_file.exists() and stamp_file.read_text(encoding="utf-8") == stamp:
        yield None
        return
    new = folder.with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    yield new
    # `nox -R` installs nothing.
    if new.exists():
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
        stamp_file.write_text(stamp, encoding="utf-8")


def _write_command(session: nox.Session, name: str, code: str) -> None:
    own = Path(session.bin, name)
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
    editable: list[str] = []
    for name, names in sorted(_extras_of_packages(requirements).items()):
        editable += ["-e", f"./{PACKAGES[name].path}" + (f"[{','.join(sorted(names))}]" if names else "")]
    return [*editable, *sorted({text for text in requirements if Requirement(text).name not in PACKAGES})]


def _extras_of_packages(requirements: Iterable[str]) -> dict[str, set[str]]:
    """Return the packages of this repository that requirements need, each with the extras that they name."""
    extras: dict[str, set[str]] = {}
    for requirement in map(Requirement, requirements):
        if requirement.name in PACKAGES:
            for package in resolve_packages([requirement.name], requirement.extras):
                extras.setdefault(package.name, set())
            extras[requirement.name] |= requirement.extras
    return extras


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
