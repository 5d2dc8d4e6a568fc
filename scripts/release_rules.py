"""What a package must fulfil before it is released, read from the checkout and its tags; nothing is changed here.

A release of hpu-ddp is a tag such as `hpu-ddp-v0.2.0`. Below 1.0 a minor may break the public API, from then on only a
major may.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import griffe
import tomli
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS: Final = ("major", "minor", "patch")
# What a package without a release counts from, so that its first is 0.1.0 by `minor` and 1.0.0 by `major`.
NOTHING: Final = Version("0.0.0")
# What of a package's folder reaches its users; the rest may change without a release.
PUBLISHED: Final = ("src", "pyproject.toml", "README.md", "LICENSE")
_VERSION_LINE: Final = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


class ReleaseError(RuntimeError):
    """A release that is not made; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Checkout:
    """A git checkout of the repository.

    Attributes:
        root: Its top folder.
    """

    root: Path

    def git(self, *arguments: str) -> str:
        """Run git at the root and give what it prints; what it complains of goes to the terminal.

        Raises:
            subprocess.CalledProcessError: If git fails.
        """
        command = ("git", "-C", str(self.root), *arguments)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own words.
        return done.stdout.strip()

    @contextlib.contextmanager
    def worktree(self, commit: str) -> Iterator[Path]:
        """Check out a commit into a temporary folder that shares this checkout's objects, and remove it afterwards."""
        with tempfile.TemporaryDirectory(prefix="release-") as folder:
            path = Path(folder) / "tree"
            self.git("worktree", "add", "--quiet", "--detach", str(path), commit)
            try:
                yield path
            finally:
                self.git("worktree", "remove", "--force", str(path))

    def default_branch(self) -> str:
        """Give the branch that releases are made on: the remote's default, "main" without a remote."""
        heads = self.git("for-each-ref", "--format=%(symref)", "refs/remotes/origin/HEAD")
        return heads.rpartition("/")[2] or "main"

    def releases(self, package: str) -> list[Version]:
        """Give a package's released versions, oldest first."""
        prefix = f"{package}-v"
        versions = []
        for tag in self.git("tag", "--list", f"{prefix}*").splitlines():
            # Another kind of tag with the same beginning is none of ours.
            with contextlib.suppress(InvalidVersion):
                versions.append(Version(tag.removeprefix(prefix)))
        return sorted(versions)


@dataclass(frozen=True)
class Package:
    """One folder under packages/ of a checkout, or of another tree.

    Attributes:
        name: The distribution, "hpu-core".
        tree: The top folder of the tree.
    """

    name: str
    tree: Path

    @property
    def path(self) -> str:
        """The folder, relative to the tree."""
        return f"packages/{self.name}"

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.tree / self.path

    @property
    def about(self) -> Path:
        """The module that holds the version."""
        return self.folder / "src" / self.name.replace("-", "_") / "__about__.py"

    @property
    def version(self) -> Version:
        """The version that the source carries."""
        (version,) = _VERSION_LINE.findall(self.about.read_text(encoding="utf-8"))
        return Version(version)

    @property
    def changelog(self) -> Path:
        """The notes of its releases."""
        return self.folder / "CHANGELOG.md"

    @property
    def modules(self) -> list[str]:
        """The import packages."""
        return sorted(path.parent.name for path in self.folder.glob("src/*/__init__.py"))

    @property
    def notes(self) -> list[Path]:
        """The fragments of the next release's notes."""
        return sorted(self.folder.glob("changes/*.md"))

    def siblings(self) -> dict[str, SpecifierSet]:
        """Give the ranges of the packages of this tree that this one requires, extras included."""
        return sibling_ranges(
            self.name, (self.folder / "pyproject.toml").read_text(encoding="utf-8"), all_names(self.tree)
        )


def all_names(tree: Path) -> list[str]:
    """Give the names of a tree's packages, in alphabetical order."""
    return sorted(file.parent.name for file in tree.glob("packages/*/pyproject.toml"))


def sibling_ranges(name: str, pyproject: str, names: list[str]) -> dict[str, SpecifierSet]:
    """Give the ranges of the other packages that a package requires.

    Args:
        name: The package.
        pyproject: The text of its pyproject.toml.
        names: The packages of the repository.
    """
    project = tomli.loads(pyproject)["project"]
    groups = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    ranges: dict[str, SpecifierSet] = {}
    for requirement in (Requirement(text) for group in groups for text in group):
        if requirement.name in names and requirement.name != name:
            ranges[requirement.name] = ranges.get(requirement.name, SpecifierSet()) & requirement.specifier
    return ranges


def next_version(last: Version, wanted: str) -> Version:
    """Give the version of the next release.

    Args:
        last: The last release's, or `NOTHING`.
        wanted: "major", "minor", "patch" or the version itself.

    Raises:
        ReleaseError: If the version is not written as three numbers, or not newer than the last release.
    """
    if wanted in LEVELS:
        numbers = list(last.release)
        level = LEVELS.index(wanted)
        return Version(".".join(map(str, [*numbers[:level], numbers[level] + 1, 0, 0][:3])))
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", wanted):
        raise ReleaseError(f"the version must be major, minor, patch or three numbers such as 0.2.0, got {wanted!r}")
    version = Version(wanted)
    if version <= last:
        raise ReleaseError(f"{version} is not newer than the last release, {last}: choose a higher version")
    return version


def may_break(last: Version, version: Version) -> bool:
    """Tell whether a release may break the API of the one before it."""
    kept = 1 if last.major else 2
    return version.release[:kept] != last.release[:kept]


def check_tree(checkout: Checkout) -> None:
    """Refuse a checkout that is not exactly what its default branch says.

    Raises:
        ReleaseError: If something is not committed, or another branch is checked out.
    """
    if changes := checkout.git("status", "--porcelain").splitlines():
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        raise ReleaseError(f"the working tree is not clean ({changes[0].strip()}{more}): commit or remove that first")
    branch = checkout.git("rev-parse", "--abbrev-ref", "HEAD")
    if branch != (default := checkout.default_branch()):
        raise ReleaseError(f"releases are made on {default}, and {branch} is checked out: git switch {default}")


def check_landed(checkout: Checkout) -> None:
    """Refuse a commit that is not on the default branch, here or at the remote.

    Raises:
        ReleaseError: If it is on neither.
    """
    default = checkout.default_branch()
    branches = (f"refs/heads/{default}", f"refs/remotes/origin/{default}")
    if not checkout.git("for-each-ref", "--contains", "HEAD", *branches):
        raise ReleaseError(f"the commit is not on {default}, where releases are made: land it there and tag again")


def check_changes(checkout: Checkout, package: Package, last: Version) -> None:
    """Refuse a release in which nothing is new, or whose news nobody has written down.

    Raises:
        ReleaseError: If nothing of what is published changed since the last release, or there is no fragment.
    """
    tag = f"{package.name}-v{last}"
    published = [f"{package.path}/{name}" for name in PUBLISHED]
    if last != NOTHING and not checkout.git("diff", "--name-only", tag, "HEAD", "--", *published):
        raise ReleaseError(f"nothing that {package.name} publishes changed since {tag}: there is nothing to release")
    if not package.notes:
        raise ReleaseError(
            f"{package.path}/changes holds no note for the changelog: add one by "
            f"`towncrier create --config towncrier.toml --dir {package.path} +word.changed.md -c '...'`"
        )


def check_version(package: Package, version: Version) -> None:
    """Refuse a version that the source or a sibling contradicts.

    Raises:
        ReleaseError: If the source carries a higher version already, or a sibling's range excludes the new one.
    """
    if package.version > version:
        raise ReleaseError(
            f"{package.about.relative_to(package.tree)} carries {package.version} already, which is above {version}: "
            f"release that, or lower it"
        )
    for name in all_names(package.tree):
        wanted = Package(name, package.tree).siblings().get(package.name)
        if wanted is not None and version not in wanted:
            raise ReleaseError(
                f"{name} requires {package.name}{wanted}, which excludes {version}: widen that range in "
                f"packages/{name}/pyproject.toml first, because the packages of this tree must fit together"
            )


def check_api(checkout: Checkout, package: Package, last: Version, version: Version) -> list[str]:
    """Compare the public API with the last release's.

    Returns:
        What breaks, as "hpu_core.devices (`devices(kind)`: *Parameter was removed*)"; empty before the second release.

    Raises:
        ReleaseError: If something breaks and the version may not break anything.
    """
    if last == NOTHING:
        return []
    breakages = []
    with checkout.worktree(f"{package.name}-v{last}") as tree:
        before, after = (load_api(side) for side in (Package(package.name, tree), package))
        for module, api in before.items():
            if module not in after:
                breakages.append(f"{module} (removed)")
                continue
            for breakage in griffe.find_breaking_changes(api, after[module]):
                explained = breakage.explain(griffe.ExplanationStyle("markdown")).removeprefix("- ")
                breakages.append(f"{breakage.obj.path} ({explained})")
    if breakages and not may_break(last, version):
        allowed = next_version(last, "major" if last.major else "minor")
        raise ReleaseError(
            f"the public API broke since {package.name}-v{last}, which {version} may not do: release {allowed} or mend "
            f"{'; '.join(breakages)}"
        )
    return breakages


def load_api(package: Package) -> dict[str, griffe.Object | griffe.Alias]:
    """Read the public API of a package, without importing it.

    Its siblings are read along with it, because what a class inherits from one of theirs is its own API, too.

    Returns:
        Each of its modules, by name.
    """
    packages = [package, *(Package(name, package.tree) for name in package.siblings())]
    loader = griffe.GriffeLoader(search_paths=[one.folder / "src" for one in packages], allow_inspection=False)
    loaded = {module: loader.load(module) for one in packages for module in one.modules}
    loader.resolve_aliases(external=False)
    return {module: loaded[module] for module in package.modules}


def floors(checkout: Checkout, package: Package) -> dict[str, Version]:
    """Give the oldest releases of its siblings that a package says it works with.

    What siblings require of each other counts, too: hpu-compat with the oldest hpu-ddp needs a hpu-core that fits both.

    Returns:
        The version of each sibling.

    Raises:
        ReleaseError: If no release of a sibling is in the range.
    """
    names = all_names(package.tree)
    ranges: dict[str, SpecifierSet] = {}
    chosen: dict[str, Version] = {}
    waiting = [(package.name, package.siblings())]
    # Ends because a range only narrows and a choice only rises.
    while waiting:
        requirer, wanted = waiting.pop()
        for sibling, specifier in wanted.items():
            ranges[sibling] = ranges.get(sibling, SpecifierSet()) & specifier
            releases = checkout.releases(sibling)
            floor = next((version for version in releases if version in ranges[sibling]), None)
            if floor is None:
                last = f"the last is {releases[-1]}" if releases else "it has none yet"
                raise ReleaseError(
                    f"{requirer} requires {sibling}{specifier}, and no release of it fits ({last}): "
                    f"release {sibling} first, or mend the range in {package.path}/pyproject.toml"
                )
            if chosen.get(sibling) != floor:
                chosen[sibling] = floor
                text = checkout.git("show", f"{sibling}-v{floor}:packages/{sibling}/pyproject.toml")
                waiting.append((sibling, sibling_ranges(sibling, text, names)))
    return chosen
