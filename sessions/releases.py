"""Releases: what a package must fulfil, and how its changelog, commit and tag are made."""

from __future__ import annotations

import nox

from sessions.environments import DEFAULT_ROW, install
from sessions.packages import PACKAGES, ROOT, Package, each_package, group, read_version


@nox.session(default=False)
@each_package
def release(session: nox.Session, package: Package) -> None:
    """Check, then commit and tag a release: `-- minor` (or major, patch, 1.2.3); `-- --dry-run minor` only shows it."""
    check(session, package, [argument for argument in session.posargs if argument != "--dry-run"])
    session.run("python", "scripts/release.py", "make", package.name, *session.posargs)


@nox.session(default=False)
@each_package
def release_check(session: nox.Session, package: Package) -> None:
    """Check that a release may be made (`-- minor`), or that a tag may be published (`-- --tag hpu-core-v1.2.0`)."""
    check(session, package, session.posargs)


@nox.session(default=False)
def release_trial(session: nox.Session) -> None:
    """Release two packages in a clone to an index on this machine, and install, upgrade and downgrade them there."""
    install(session, *group("release_trial"))
    session.run("python", "scripts/release_trial.py")


def check(session: nox.Session, package: Package, arguments: list[str]) -> None:
    """Check the rules of a release, and that the package works with the oldest siblings that it admits."""
    install(session, *group("release"))
    session.run("python", "scripts/release.py", "check", package.name, *arguments)
    floors = session.run("python", "scripts/release.py", "floors", package.name, silent=True, log=False)
    if siblings := str(floors).splitlines():
        session.log(f"{package.name} with the oldest releases that it admits: {', '.join(siblings)}")
        check_with_siblings(session, package, siblings)


def check_with_siblings(session: nox.Session, package: Package, siblings: list[str]) -> None:
    """Check a package's types and imports with given siblings, none of which comes from the tree.

    What a package uses of a sibling that has no such thing yet is an error of one or the other.

    Args:
        session: The running session.
        package: The package.
        siblings: Requirements of all its siblings, as pip takes them.
    """
    source = ROOT / package.path / "src"
    extras = f"[{','.join(package.extras)}]" if package.extras else ""
    # An environment of an earlier run holds newer ones, or this package as it was.
    session.run_install("python", "-m", "pip", "uninstall", "--yes", "--quiet", *PACKAGES, silent=True)
    session.install("-c", DEFAULT_ROW, "mypy", *siblings, f"./{package.path}{extras}")
    script = str(ROOT / "scripts" / "import_every_module.py")
    # Far from the checkout: the root's configuration would find the siblings of the tree beside it.
    with session.chdir(session.create_tmp()):
        configuration = ("--config-file", str(ROOT / "pyproject.toml"))
        # What an older sibling lacks may need an ignore that a newer one does not.
        options = (*configuration, "--no-warn-unused-ignores", str(source))
        session.run("mypy", *options, env={"MYPYPATH": str(source)})
        for module in package.modules:
            session.run("python", "-I", script, module, "--complete")


def draft_notes(session: nox.Session, package: Package, *, silent: bool) -> None:
    """Render the notes of a package's next release, without writing anything."""
    place = ("--config", "towncrier.toml", "--dir", str(package.path))
    release = ("--name", package.name, "--version", read_version(package))
    session.run("towncrier", "build", "--draft", *place, *release, silent=silent)
