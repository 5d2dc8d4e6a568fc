"""Releases: whether a package may have one, and what its notes say."""

from __future__ import annotations

import argparse

import nox
from packaging.version import Version

from sessions.environments import install
from sessions.packages import Package, each_package, group, read_version


@nox.session(default=False)
@each_package
def release_check(session: nox.Session, package: Package) -> None:
    """Check that a package may be released, and show its notes; `-- --tag hpu-core-v1.2.0` checks a tag, too."""
    parser = argparse.ArgumentParser(prog=f"nox -s 'release_check({package.name})' --")
    parser.add_argument("--tag", help="the tag that is to be released; it must name the package's version")
    tag = parser.parse_args(session.posargs).tag
    version = read_version(package)
    if tag is not None and tag != f"{package.name}-v{version}":
        session.error(f"tag {tag!r} does not name {package.name} {version}: expected '{package.name}-v{version}'")

    install(session, *group("release"))
    last = last_release(session, package, ignoring=tag)
    if last is None:
        session.log(f"{package.name} has no release yet: {version} is the first")
    else:
        compare_with_release(session, package, last)
    draft_notes(session, package, silent=False)


def draft_notes(session: nox.Session, package: Package, *, silent: bool) -> None:
    """Render the notes of a package's next release, without writing anything."""
    place = ("--config", "towncrier.toml", "--dir", str(package.path))
    release = ("--name", package.name, "--version", read_version(package))
    session.run("towncrier", "build", "--draft", *place, *release, silent=silent)


def git(session: nox.Session, *arguments: str) -> str:
    """Run git and give what it prints."""
    return str(session.run("git", *arguments, external=True, silent=True, log=False)).strip()


def last_release(session: nox.Session, package: Package, *, ignoring: str | None) -> str | None:
    """Give the tag of a package's newest release, or None before the first.

    Args:
        session: The running session.
        package: The package.
        ignoring: The tag that is being released, which is no release yet.
    """
    prefix = f"{package.name}-v"
    tags = [tag for tag in git(session, "tag", "--list", f"{prefix}*").splitlines() if tag != ignoring]
    return max(tags, key=lambda tag: Version(tag.removeprefix(prefix)), default=None)


def compare_with_release(session: nox.Session, package: Package, last: str) -> None:
    """Fail when the source changed since a release and the version did not, or the API broke within a major."""
    released = Version(last.removeprefix(f"{package.name}-v"))
    version = Version(read_version(package))
    source = f"{package.path}/src"
    changed = git(session, "diff", "--name-only", last, "--", source).splitlines()
    if changed and version <= released:
        session.error(
            f"{package.name} changed since {last} ({len(changed)} files in {source}) and its version is still "
            f"{version}: raise `__version__` in {source}/{package.modules[0]}/__about__.py"
        )
    # Below 1.0 a minor may break the API; from then on only a major may.
    compatible = version.release[: 1 if released.major else 2] == released.release[: 1 if released.major else 2]
    if compatible:
        for module in package.modules:
            session.run("griffecli", "check", module, "--search", source, "--against", last)
