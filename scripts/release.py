"""Check and make the release of one package; `nox -s "release(hpu-ddp)" -- minor` and its like call it.

`check` says whether the package may be released, and `check --tag` whether a tag is a release that may be published.
`floors` prints the oldest release of each sibling with which the package says it works, as pip takes it. `make` raises
`__version__`, builds the changelog, commits and tags: all of that in a temporary worktree, so that a failure leaves the
checkout as it was. Nothing is pushed.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import release_rules as rules
from release_rules import Checkout, Package, ReleaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
# Where a changelog's newest notes begin; towncrier.toml says the same.
NOTES_START: Final = "<!-- towncrier release notes start -->\n"


@dataclass(frozen=True)
class Plan:
    """A release that may be made.

    Attributes:
        package: What is released.
        last: The release before it, or `release_rules.NOTHING`.
        version: The new version.
        breakages: What breaks the public API.
        floors: The oldest release of each sibling that the package admits.
    """

    package: Package
    last: Version
    version: Version
    breakages: list[str]
    floors: dict[str, Version]

    @property
    def tag(self) -> str:
        """The tag, "hpu-ddp-v0.2.0"."""
        return f"{self.package.name}-v{self.version}"

    @property
    def title(self) -> str:
        """What the commit says."""
        return f"release {self.package.name} v{self.version}"

    def __str__(self) -> str:
        """Say what the release is."""
        before = "its first release" if self.last == rules.NOTHING else f"after {self.last}"
        lines = [f"{self.package.name} {self.version}, {before}"]
        lines += [f"  works with {name} from {version} on" for name, version in sorted(self.floors.items())]
        lines += [f"  breaks {breakage}" for breakage in self.breakages]
        return "\n".join(lines)


def plan(checkout: Checkout, name: str, wanted: str) -> Plan:
    """Check everything that a release needs.

    Args:
        checkout: The checkout to release from.
        name: The package.
        wanted: "major", "minor", "patch" or the version itself.

    Raises:
        ReleaseError: If a rule is broken.
    """
    package = Package(name, checkout.root)
    rules.check_tree(checkout)
    last = (checkout.releases(name) or [rules.NOTHING])[-1]
    version = rules.next_version(last, wanted)
    rules.check_changes(checkout, package, last)
    rules.check_version(package, version)
    breakages = rules.check_api(checkout, package, last, version)
    return Plan(package, last, version, breakages, rules.floors(checkout, package))


def plan_of_tag(checkout: Checkout, name: str, tag: str) -> Plan:
    """Check that a tag, which is checked out, is a release that may be published.

    Args:
        checkout: The checkout.
        name: The package.
        tag: The tag.

    Raises:
        ReleaseError: If the tag is not what `make` makes, or a rule is broken.
    """
    package = Package(name, checkout.root)
    if tag != (expected := f"{name}-v{package.version}"):
        raise ReleaseError(f"tag {tag!r} does not name what it holds, {name} {package.version}: expected {expected!r}")
    rules.check_landed(checkout)
    heading = re.compile(rf"^## {re.escape(str(package.version))} \(", re.MULTILINE)
    if package.notes or not heading.search(package.changelog.read_text(encoding="utf-8")):
        raise ReleaseError(
            f"{package.path}/CHANGELOG.md has no notes of {package.version}, or {package.path}/changes still holds "
            f"some: make releases by `nox -s 'release({name})' -- minor`"
        )
    last = ([version for version in checkout.releases(name) if version < package.version] or [rules.NOTHING])[-1]
    breakages = rules.check_api(checkout, package, last, package.version)
    return Plan(package, last, package.version, breakages, rules.floors(checkout, package))


def write_notes(package: Package, version: Version) -> str:
    """Move a package's fragments to its changelog.

    Args:
        package: The package, in the tree to write to.
        version: The version.

    Returns:
        What the changelog says of the version.

    Raises:
        subprocess.CalledProcessError: If towncrier fails.
    """
    head, marker, tail = package.changelog.read_text(encoding="utf-8").partition(NOTES_START)
    place = ("--config", str(package.tree / "towncrier.toml"), "--dir", str(package.folder))
    release = ("--name", package.name, "--version", str(version))
    command = (sys.executable, "-m", "towncrier", "build", "--yes", *place, *release)
    # It calls git where it runs, and tells on stderr what it is about to do.
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=package.tree)  # noqa: S603 - our own words.
    written = package.changelog.read_text(encoding="utf-8")
    return written.removeprefix(head + marker).removesuffix(tail).strip()


@contextlib.contextmanager
def prepared(checkout: Checkout, release: Plan) -> Iterator[tuple[Checkout, str]]:
    """Make the release's commit in a temporary worktree.

    Yields:
        The worktree, whose HEAD is the commit, and the release's notes.
    """
    with checkout.worktree("HEAD") as tree:
        package = Package(release.package.name, tree)
        text = package.about.read_text(encoding="utf-8")
        package.about.write_text(text.replace(f'"{package.version}"', f'"{release.version}"'), encoding="utf-8")
        notes = write_notes(package, release.version)
        copy = Checkout(tree)
        copy.git("add", "--all", "--", package.path)
        copy.git("commit", "--quiet", "--message", release.title)
        yield copy, notes


def make(checkout: Checkout, release: Plan) -> None:
    """Commit and tag a release, or leave the checkout as it was.

    Raises:
        subprocess.CalledProcessError: If git or towncrier fails.
    """
    with prepared(checkout, release) as (copy, notes):
        commit = copy.git("rev-parse", "HEAD")
    message = f"{release.title}\n\n{notes}"
    # Without the clean-up the headings of the notes would be taken for git's comments.
    checkout.git("tag", "--annotate", "--cleanup=whitespace", "--message", message, release.tag, commit)
    try:
        checkout.git("merge", "--quiet", "--ff-only", commit)
    except BaseException:
        checkout.git("tag", "--delete", release.tag)
        # Git writes the files before the branch.
        checkout.git("restore", "--staged", "--worktree", "--", release.package.path)
        raise
    branch = checkout.default_branch()
    print(f"made {release.tag}; this publishes it: git push --atomic origin {branch} {release.tag}")


def show(checkout: Checkout, release: Plan) -> None:
    """Print the commit and the tag that `make` would make."""
    with prepared(checkout, release) as (copy, notes):
        print(copy.git("show", "--stat", "--format=commit: %s", "HEAD"))
    print(f"\ntag: {release.tag}\n\n{notes}\n\nNothing was changed, because this was a dry run.")


def requirements(checkout: Checkout, floors: dict[str, Version]) -> list[str]:
    """Give what pip takes to install released siblings from their tags."""
    url = checkout.root.as_uri()
    return [
        f"{name} @ git+{url}@{name}-v{version}#subdirectory=packages/{name}" for name, version in sorted(floors.items())
    ]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, purpose in (
        ("check", "say whether a release may be made, or a tag published"),
        ("floors", "print the oldest siblings that the package admits, as pip takes them"),
        ("make", "commit and tag a release"),
    ):
        one = commands.add_parser(command, help=purpose)
        one.add_argument("package", choices=rules.all_names(ROOT))
        if command == "check":
            what = one.add_mutually_exclusive_group(required=True)
            what.add_argument("wanted", nargs="?", metavar="LEVEL", help="major, minor, patch or a version")
            what.add_argument("--tag", help="the tag that is checked out and is to be published")
        if command == "make":
            one.add_argument("wanted", metavar="LEVEL", help="major, minor, patch or a version")
            one.add_argument("--dry-run", action="store_true", help="show the commit and the tag, and make neither")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The command line, `sys.argv[1:]` if None.

    Returns:
        0, or 1 when the release is refused.
    """
    options = parse(arguments)
    checkout = Checkout(ROOT)
    try:
        if options.command == "floors":
            for requirement in requirements(checkout, rules.floors(checkout, Package(options.package, ROOT))):
                print(requirement)
            return 0
        tag = getattr(options, "tag", None)
        release = (
            plan_of_tag(checkout, options.package, tag) if tag else plan(checkout, options.package, options.wanted)
        )
        print(release)
        if options.command == "make":
            (show if options.dry_run else make)(checkout, release)
    except ReleaseError as refused:
        print(f"{options.package} is not released: {refused}.", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failed:
        print(failed.stderr or "", end="", file=sys.stderr)
        print(
            f"{options.package} is not released, nothing was changed: {shlex.join(failed.cmd)} failed.", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
