"""Make the commit of a package's release, and check what may be published; `nox -s release` and others call it.

A release is a commit in a pull request, with the version and the notes in CHANGELOG.md, and a tag such as
hpu-ddp-v0.2.0 on the merged commit. hatchling increments versions, griffe compares public APIs and towncrier writes
changelogs. Below 1.0 a minor release may break the API, from 1.0 on only a major one. Nothing is pushed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import griffe
from hatchling.version.scheme.standard import StandardScheme
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
# The protected branch.
_BRANCH: Final = "main"
# A package without a release counts from here: its first release is 0.1.0 by `minor`.
NO_RELEASE: Final = Version("0.0.0")
# The parts of a package's folder that reach its users.
PACKAGE_FILES: Final = ("src", "pyproject.toml", "README.md", "LICENSE")


class ReleaseError(RuntimeError):
    """A release that breaks a rule; the message says what to do."""


@dataclass(frozen=True)
class Package:
    """A folder under packages/ of a git checkout.

    Attributes:
        name: The distribution, "hpu-core".
        root: The top folder of the checkout.
    """

    name: str
    root: Path

    @property
    def path(self) -> str:
        """The folder, relative to the root."""
        return f"packages/{self.name}"

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.root / self.path

    @property
    def about(self) -> Path:
        """The module that holds the version."""
        return self.folder / "src" / self.name.replace("-", "_") / "__about__.py"

    @property
    def version(self) -> Version:
        """The version in the source."""
        (version,) = re.findall(r'^__version__ = "(.+)"$', self.about.read_text(encoding="utf-8"), re.MULTILINE)
        return Version(version)

    @property
    def project(self) -> dict[str, Any]:
        """The table `project` of pyproject.toml."""
        project: dict[str, Any] = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return project

    @property
    def fragments(self) -> list[Path]:
        """The changelog fragments of the next release."""
        return sorted(self.folder.glob("changes/*.md"))

    @property
    def releases(self) -> list[Version]:
        """The released versions, oldest first: those with notes in the changelog, which only releases edit."""
        notes = (self.folder / "CHANGELOG.md").read_text(encoding="utf-8")
        return sorted(map(Version, re.findall(r"^## (\d\S*) \(", notes, re.MULTILINE)))

    def git(self, *arguments: str) -> str:
        """Run git at the root and return what it prints.

        Raises:
            subprocess.CalledProcessError: If git fails.
        """
        command = ("git", "-C", str(self.root), *arguments)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()  # noqa: S603

    def commit_of(self, release: Version) -> str:
        """Return the commit of a release: the tag's, or without a tag the one that wrote its notes."""
        tag = f"{self.name}-v{release}"
        if self.git("tag", "--list", tag):
            return self.git("rev-parse", f"{tag}^{{commit}}")
        changelog = f"{self.path}/CHANGELOG.md"
        return self.git("log", "--format=%H", f"-S## {release} (", "--", changelog).split()[-1]

    def requirement(self, release: Version) -> str:
        """Return the pip requirement of a release, from its commit."""
        return f"{self.name} @ git+{self.root.as_uri()}@{self.commit_of(release)}#subdirectory={self.path}"

    def peers(self) -> list[Package]:
        """Return the other packages of the checkout."""
        names = sorted(file.parent.name for file in self.root.glob("packages/*/pyproject.toml"))
        return [Package(name, self.root) for name in names if name != self.name]

    def range_of(self, peer: Package) -> SpecifierSet | None:
        """Return the versions of a peer that this package requires, extras included; None if it requires none."""
        groups = [self.project["dependencies"], *self.project.get("optional-dependencies", {}).values()]
        requirements = (Requirement(text) for group in groups for text in group)
        found = [requirement.specifier for requirement in requirements if requirement.name == peer.name]
        return SpecifierSet(",".join(map(str, found))) if found else None


def check_release(package: Package, level: str) -> Version:
    """Check everything that a release needs.

    Raises:
        ReleaseError: If a rule is broken.
    """
    if changes := package.git("status", "--porcelain").splitlines():
        raise ReleaseError(f"the working tree is not clean ({changes[0].strip()}): commit or remove that first")
    if package.git("rev-parse", "--abbrev-ref", "HEAD") == _BRANCH:
        raise ReleaseError(f"{_BRANCH} takes releases by pull request: git switch --create release")
    last = (package.releases or [NO_RELEASE])[-1]
    try:
        version = Version(StandardScheme(str(package.root), {}).update(level, str(last), {}))
    except ValueError as error:
        raise ReleaseError(f"`{level}` must be major, minor, patch or a higher version: {error}") from error
    paths = [f"{package.path}/{name}" for name in PACKAGE_FILES]
    if last != NO_RELEASE and not package.git("diff", "--name-only", package.commit_of(last), "HEAD", "--", *paths):
        raise ReleaseError(f"nothing that {package.name} publishes changed since {last}: there is nothing to release")
    if last != NO_RELEASE and not package.fragments:
        command = f"towncrier create --config pyproject.toml --dir {package.path} +word.changed.md -c '...'"
        raise ReleaseError(f"{package.path}/changes holds no changelog fragment: add one by `{command}`")
    if package.version > version:
        raise ReleaseError(f"the source has version {package.version}, which is above {version}: release that")
    check_api(package, last, version)
    oldest_peers(package)
    return version


def check_tag(package: Package, tag: str) -> None:
    """Check that the tag that is checked out may be published.

    Raises:
        ReleaseError: If it does not name a merged release, or a rule is broken.
    """
    version = package.version
    if tag != (expected := f"{package.name}-v{version}"):
        raise ReleaseError(f"tag {tag!r} does not name what it holds, {package.name} {version}: expected {expected!r}")
    refs = (f"refs/heads/{_BRANCH}", f"refs/remotes/origin/{_BRANCH}")
    if not package.git("for-each-ref", "--contains", "HEAD", *refs):
        raise ReleaseError(f"the commit is not on {_BRANCH}, where releases are merged: merge it and tag again")
    if package.fragments or version not in package.releases:
        raise ReleaseError(
            f"{package.path}/CHANGELOG.md has no notes of {version}, or {package.path}/changes still holds some: make "
            f"releases by `nox -s 'release({package.name})' -- minor`"
        )
    check_api(package, max((v for v in package.releases if v < version), default=NO_RELEASE), version)
    oldest_peers(package)


def check_api(package: Package, last: Version, version: Version) -> None:
    """Print how a release breaks the public API of the one before it.

    Raises:
        ReleaseError: If a patch breaks it, or from 1.0 on a minor.
    """
    if last == NO_RELEASE:
        return
    # The peers are read too, because what a class inherits from one of theirs is part of its API.
    paths = [f"{peer.path}/src" for peer in (package, *package.peers())]
    changes = []
    for module in sorted(path.parent.name for path in package.folder.glob("src/*/__init__.py")):
        options: dict[str, Any] = dict.fromkeys(("resolve_aliases", "resolve_implicit", "resolve_external"), True)
        options["allow_inspection"] = False
        commit = package.commit_of(last)
        before = griffe.load_git(module, ref=commit, repo=package.root, search_paths=paths, **options)
        after = griffe.load(module, search_paths=[package.root / path for path in paths], **options)
        for change in griffe.find_breaking_changes(before, after):
            text = change.explain(griffe.ExplanationStyle("markdown")).removeprefix("- ")
            changes.append(f"{change.obj.path} ({text})")
    level, kept = ("major", 1) if last.major else ("minor", 2)
    if changes and version.release[:kept] == last.release[:kept]:
        raise ReleaseError(f"the API broke since {last}: release a {level} version or restore {'; '.join(changes)}")
    for line in changes:
        print(f"breaks {line}")


def oldest_peers(package: Package) -> list[str]:
    """Return pip requirements of the oldest release of each peer that a package admits.

    Raises:
        ReleaseError: If no release of a peer is in the range.
    """
    requirements = []
    for peer in package.peers():
        specifier = package.range_of(peer)
        if specifier is None:
            continue
        version = next((release for release in peer.releases if release in specifier), None)
        if version is None:
            last = f"the last is {peer.releases[-1]}" if peer.releases else "it has none"
            raise ReleaseError(
                f"{package.name} requires {peer.name}{specifier}, and no release of it fits ({last}): "
                f"release {peer.name} first, or change the range in {package.path}/pyproject.toml"
            )
        requirements.append(peer.requirement(version))
    return requirements


def last_dependents(package: Package) -> list[str]:
    """Return pip requirements of the last release of each package that requires this one, from its commit."""
    peers = (peer for peer in package.peers() if peer.range_of(package) is not None and peer.releases)
    return [peer.requirement(peer.releases[-1]) for peer in peers]


def make(package: Package, version: Version) -> None:
    """Commit a release; a failure leaves the checkout as it was.

    Raises:
        subprocess.CalledProcessError: If git or towncrier fails.
    """
    head = package.git("rev-parse", "HEAD")
    towncrier = (sys.executable, "-m", "towncrier", "build", "--yes", "--config", "pyproject.toml")
    options = ("--dir", package.path, "--name", package.name, "--version", str(version))
    try:
        subprocess.run([*towncrier, *options], check=True, stdout=subprocess.DEVNULL, cwd=package.root)  # noqa: S603 - our own arguments.
        source = package.about.read_text(encoding="utf-8")
        package.about.write_text(source.replace(f'"{package.version}"', f'"{version}"'), encoding="utf-8")
        package.git("add", "--all", "--", package.path)
        package.git("commit", "--quiet", "--message", f"Release {package.name} {version}")
    except BaseException:
        package.git("reset", "--quiet", "--hard", head)
        package.git("clean", "--quiet", "--force", "--", package.path)
        raise
    print(f"made a commit for {package.name} {version}; merge it by a pull request, then tag {package.name}-v{version}")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return 1 if the release is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "make", "oldest-peers", "last-dependents", "check-tag"])
    parser.add_argument("package")
    parser.add_argument("level", nargs="?", default="", help="major, minor, patch or a version; the tag of `check-tag`")
    options = parser.parse_args(arguments)
    package = Package(options.package, ROOT)
    try:
        if options.command == "check-tag":
            check_tag(package, options.level)
        elif options.command == "check":
            print(f"{package.name} {check_release(package, options.level)} may be released")
        elif options.command == "make":
            make(package, check_release(package, options.level))
        else:
            listing = oldest_peers if options.command == "oldest-peers" else last_dependents
            print("\n".join(listing(package)))
    except ReleaseError as error:
        print(f"{options.package} is not released: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
