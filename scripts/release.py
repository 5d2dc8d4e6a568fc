"""Check and make the release of one package; `nox -s release` and `nox -s release_check` call it.

A release of hpu-ddp 0.2.0 is one commit and the tag hpu-ddp-v0.2.0. hatchling increments versions, griffe compares
public APIs and towncrier writes changelogs. Below 1.0 a minor release may break the API, from 1.0 on only a major one.
Nothing is pushed.
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
import tomli
from hatchling.version.scheme.standard import StandardScheme
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
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
    def about(self) -> Path:
        """The module that holds the version."""
        return self.root / self.path / "src" / self.name.replace("-", "_") / "__about__.py"

    @property
    def version(self) -> Version:
        """The version in the source."""
        (version,) = re.findall(r'^__version__ = "(.+)"$', self.about.read_text(encoding="utf-8"), re.MULTILINE)
        return Version(version)

    @property
    def fragments(self) -> list[Path]:
        """The changelog fragments of the next release."""
        return sorted(self.root.glob(f"{self.path}/changes/*.md"))

    def git(self, *arguments: str) -> str:
        """Run git at the root and return what it prints.

        Raises:
            subprocess.CalledProcessError: If git fails.
        """
        command = ("git", "-C", str(self.root), *arguments)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()  # noqa: S603

    def releases(self, before: Version | None = None) -> list[Version]:
        """Return the released versions, oldest first, before a given one if there is one."""
        tags = self.git("tag", "--list", f"{self.name}-v*").splitlines()
        texts = (tag.removeprefix(f"{self.name}-v") for tag in tags)
        found = [Version(text) for text in texts if re.fullmatch(r"\d+(\.\d+)*", text)]
        return sorted(version for version in found if before is None or version < before)

    def peers(self) -> list[Package]:
        """Return all packages of the checkout."""
        return [Package(file.parent.name, self.root) for file in sorted(self.root.glob("packages/*/pyproject.toml"))]

    def peer_ranges(self) -> dict[str, SpecifierSet]:
        """Return the version ranges of the other packages of the checkout that this one requires, extras included."""
        project = tomli.loads((self.root / self.path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        groups = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
        names = {peer.name for peer in self.peers()} - {self.name}
        ranges: dict[str, SpecifierSet] = {}
        for requirement in (Requirement(text) for group in groups for text in group):
            if requirement.name in names:
                ranges[requirement.name] = ranges.get(requirement.name, SpecifierSet()) & requirement.specifier
        return ranges


def default_branch(package: Package) -> str:
    """Return the branch that releases are made on: the remote's default, "main" without a remote."""
    head = package.git("for-each-ref", "--format=%(symref)", "refs/remotes/origin/HEAD")
    return head.rpartition("/")[2] or "main"


def check_release(package: Package, level: str) -> Version:
    """Check everything that a release needs.

    Args:
        package: The package.
        level: "major", "minor", "patch" or the version itself.

    Returns:
        The version.

    Raises:
        ReleaseError: If a rule is broken.
    """
    if changes := package.git("status", "--porcelain").splitlines():
        raise ReleaseError(f"the working tree is not clean ({changes[0].strip()}): commit or remove that first")
    branch, default = package.git("rev-parse", "--abbrev-ref", "HEAD"), default_branch(package)
    if branch != default:
        raise ReleaseError(f"releases are made on {default}, and {branch} is checked out: git switch {default}")
    last = (package.releases() or [NO_RELEASE])[-1]
    try:
        version = Version(StandardScheme(str(package.root), {}).update(level, str(last), {}))
    except ValueError as error:
        raise ReleaseError(f"`{level}` must be major, minor, patch or a higher version: {error}") from error
    paths = [f"{package.path}/{name}" for name in PACKAGE_FILES]
    tag = f"{package.name}-v{last}"
    if last != NO_RELEASE and not package.git("diff", "--name-only", tag, "HEAD", "--", *paths):
        raise ReleaseError(f"nothing that {package.name} publishes changed since {tag}: there is nothing to release")
    if not package.fragments:
        command = f"towncrier create --config towncrier.toml --dir {package.path} +word.changed.md -c '...'"
        raise ReleaseError(f"{package.path}/changes holds no changelog fragment: add one by `{command}`")
    if package.version > version:
        raise ReleaseError(f"the source has version {package.version}, which is above {version}: release that")
    for peer in package.peers():
        specifier = peer.peer_ranges().get(package.name)
        if specifier is not None and version not in specifier:
            raise ReleaseError(
                f"{peer.name} requires {package.name}{specifier}, which excludes {version}: widen that range in "
                f"{peer.path}/pyproject.toml first, because the packages of a checkout must fit together"
            )
    check_api(package, last, version)
    min_peers(package)
    return version


def check_tag(package: Package, tag: str) -> None:
    """Check that the tag that is checked out may be published.

    Raises:
        ReleaseError: If `make` did not make the tag, or a rule is broken.
    """
    version = package.version
    if tag != (expected := f"{package.name}-v{version}"):
        raise ReleaseError(f"tag {tag!r} does not name what it holds, {package.name} {version}: expected {expected!r}")
    default = default_branch(package)
    refs = (f"refs/heads/{default}", f"refs/remotes/origin/{default}")
    if not package.git("for-each-ref", "--contains", "HEAD", *refs):
        raise ReleaseError(f"the commit is not on {default}, where releases are made: merge it and tag again")
    notes = (package.root / package.path / "CHANGELOG.md").read_text(encoding="utf-8")
    if package.fragments or f"\n## {version} (" not in notes:
        raise ReleaseError(
            f"{package.path}/CHANGELOG.md has no notes of {version}, or {package.path}/changes still holds some: make "
            f"releases by `nox -s 'release({package.name})' -- minor`"
        )
    check_api(package, (package.releases(before=version) or [NO_RELEASE])[-1], version)
    min_peers(package)


def check_api(package: Package, last: Version, version: Version) -> None:
    """Print how a release breaks the public API of the one before it.

    Raises:
        ReleaseError: If a patch breaks it, or from 1.0 on a minor.
    """
    if last == NO_RELEASE:
        return
    tag = f"{package.name}-v{last}"
    # The peers are read too, because what a class inherits from one of theirs is part of its API.
    paths = [f"{peer.path}/src" for peer in package.peers()]
    changes = []
    for module in sorted(path.parent.name for path in package.root.glob(f"{package.path}/src/*/__init__.py")):
        options: dict[str, Any] = dict.fromkeys(("resolve_aliases", "resolve_implicit", "resolve_external"), True)
        options["allow_inspection"] = False
        before = griffe.load_git(module, ref=tag, repo=package.root, search_paths=paths, **options)
        after = griffe.load(module, search_paths=[package.root / path for path in paths], **options)
        for change in griffe.find_breaking_changes(before, after):
            text = change.explain(griffe.ExplanationStyle("markdown")).removeprefix("- ")
            changes.append(f"{change.obj.path} ({text})")
    level, kept = ("major", 1) if last.major else ("minor", 2)
    if changes and version.release[:kept] == last.release[:kept]:
        raise ReleaseError(f"the API broke since {tag}: release a {level} version or restore {'; '.join(changes)}")
    for line in changes:
        print(f"breaks {line}")


def min_peers(package: Package) -> list[str]:
    """Return pip requirements of the oldest release of each peer that a package admits, installed from its tag.

    Raises:
        ReleaseError: If no release of a peer is in the range.
    """
    requirements = []
    for name, specifier in sorted(package.peer_ranges().items()):
        releases = Package(name, package.root).releases()
        version = next((release for release in releases if release in specifier), None)
        if version is None:
            last = f"the last is {releases[-1]}" if releases else "it has none"
            raise ReleaseError(
                f"{package.name} requires {name}{specifier}, and no release of it fits ({last}): "
                f"release {name} first, or change the range in {package.path}/pyproject.toml"
            )
        url = f"git+{package.root.as_uri()}@{name}-v{version}#subdirectory=packages/{name}"
        requirements.append(f"{name} @ {url}")
    return requirements


def make(package: Package, version: Version, *, dry_run: bool = False) -> None:
    """Commit and tag a release; a failure and a dry run leave the checkout as it was.

    Args:
        package: The package, in a clean checkout.
        version: The version.
        dry_run: Whether to show the commit and undo it.

    Raises:
        subprocess.CalledProcessError: If git or towncrier fails.
    """
    head = package.git("rev-parse", "HEAD")
    tag, title = f"{package.name}-v{version}", f"release {package.name} v{version}"
    command = (sys.executable, "-m", "towncrier", "build", "--yes", "--config", "towncrier.toml")
    options = ("--dir", package.path, "--name", package.name, "--version", str(version))
    try:
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL, cwd=package.root)  # noqa: S603
        source = package.about.read_text(encoding="utf-8")
        package.about.write_text(source.replace(f'"{package.version}"', f'"{version}"'), encoding="utf-8")
        package.git("add", "--all", "--", package.path)
        package.git("commit", "--quiet", "--message", title)
        if not dry_run:
            package.git("tag", "--annotate", "--message", title, tag)
    except BaseException:
        package.git("reset", "--quiet", "--hard", head)
        raise
    if dry_run:
        print(package.git("show", "HEAD"))
        package.git("reset", "--quiet", "--hard", head)
        print(f"\nNothing was changed, because this was a dry run; the tag would be {tag}.")
    else:
        print(f"made {tag}; publish it by: git push --atomic origin {default_branch(package)} {tag}")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return 1 if the release is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "min-peers", "make"])
    parser.add_argument("package")
    parser.add_argument("level", nargs="?", help="major, minor, patch or a version")
    parser.add_argument("--tag", help="check this tag, which is checked out, instead of a new release")
    parser.add_argument("--dry-run", action="store_true", help="show the commit and make neither commit nor tag")
    options = parser.parse_intermixed_args(arguments)
    if options.command != "min-peers" and not (options.level or options.tag):
        parser.error("name a level: major, minor, patch or a version")
    package = Package(options.package, ROOT)
    try:
        if options.command == "min-peers":
            print("\n".join(min_peers(package)))
        elif options.tag:
            check_tag(package, options.tag)
        else:
            version = check_release(package, options.level)
            print(f"{package.name} {version} may be released")
            if options.command == "make":
                make(package, version, dry_run=options.dry_run)
    except ReleaseError as error:
        print(f"{options.package} is not released: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
