"""Releases: their checks, and their commit and tag."""

from __future__ import annotations

import nox

from sessions.environments import DEFAULT_CONSTRAINTS, install, uninstall_packages
from sessions.packages import ROOT, Package, group, per_package


@nox.session(default=False)
@per_package
def release(session: nox.Session, package: Package) -> None:
    """Check, commit and tag a release: "release(hpu-core)" `-- minor` (major, patch, 1.2.3); `--dry-run` shows it."""
    check(session, package, [argument for argument in session.posargs if argument != "--dry-run"])
    session.run("python", "scripts/release.py", "make", package.name, *session.posargs)


@nox.session(default=False)
@per_package
def release_check(session: nox.Session, package: Package) -> None:
    """Check a release: "release_check(hpu-core)" `-- minor`, or one to publish: `-- --tag hpu-core-v1.2.0`."""
    check(session, package, session.posargs)


def check(session: nox.Session, package: Package, arguments: list[str]) -> None:
    """Check the rules of a release, and the package with the oldest peers that it admits."""
    install(session, *group("release"))
    session.run("python", "scripts/release.py", "check", package.name, *arguments)
    lines = session.run("python", "scripts/release.py", "min-peers", package.name, silent=True, log=False)
    if peers := [line for line in str(lines).splitlines() if line]:
        session.log(f"{package.name} with the oldest releases that it admits: {', '.join(peers)}")
        check_with_peers(session, package, peers)


def check_with_peers(session: nox.Session, package: Package, peers: list[str]) -> None:
    """Check a package's types and imports with given releases of its peers, as pip requirements."""
    source = ROOT / package.path / "src"
    extras = f"[{','.join(package.extras)}]" if package.extras else ""
    uninstall_packages(session)
    session.install("-c", DEFAULT_CONSTRAINTS, "mypy", *peers, f"./{package.path}{extras}")
    script = str(ROOT / "scripts" / "import_every_module.py")
    # Outside the checkout, whose configuration leads mypy to the peers in the checkout.
    with session.chdir(session.create_tmp()):
        # An ignore may be needed with an older peer only.
        options = ("--config-file", str(ROOT / "pyproject.toml"), "--no-warn-unused-ignores", str(source))
        session.run("mypy", *options, env={"MYPYPATH": str(source)})
        for module in package.modules:
            session.run("python", "-I", script, module, "--complete")


def draft_notes(session: nox.Session, package: Package, *, silent: bool) -> None:
    """Render the notes of a package's next release without writing them."""
    place = ("--config", "towncrier.toml", "--dir", str(package.path))
    session.run(
        "towncrier", "build", "--draft", *place, "--name", package.name, "--version", package.version, silent=silent
    )
