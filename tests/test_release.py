"""Tests of tools/release.py, on a small repository of two packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

import release
from release import Package, ReleaseError

ROOT = Path(__file__).parent.parent
PROJECT = """
[project]
name = "{name}"
description = "Boxes to fold."
dependencies = ["{requirement}"]
"""
BROKEN_API = {"packages/box-core/src/box_core/__init__.py": "def fold() -> int:\n    return 1\n"}


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write files; remove those without content."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text, encoding="utf-8")
        else:
            path.unlink()


def _commit(package: Package, files: dict[str, str]) -> None:
    _write(package.root, files)
    package.git("add", "--all")
    package.git("commit", "--quiet", "--message", "a change")


def _require(name: str, requirement: str) -> dict[str, str]:
    """Return the pyproject.toml of a package with one requirement."""
    return {f"packages/{name}/pyproject.toml": PROJECT.format(name=name, requirement=requirement)}


def _release(package: Package, level: str) -> None:
    """Merge a release of one package into main, with its tag."""
    package.git("switch", "--quiet", "--create", "release")
    release.make(package, release.check_release(package, level))
    _merge(package)


def _merge(package: Package, *names: str) -> None:
    """Merge the branch as a protected main does, and tag the releases of packages."""
    package.git("switch", "--quiet", "main")
    package.git("merge", "--quiet", "--no-ff", "--message", "Merge pull request #1", "release")
    package.git("branch", "--delete", "release")
    for each in (Package(name, package.root) for name in names or [package.name]):
        package.git("tag", f"{each.name}-v{each.version}")


def _state(package: Package) -> list[str]:
    """Return everything of a checkout that a failing release must leave alone."""
    return [package.git(*command.split()) for command in ("rev-parse HEAD", "status --porcelain", "tag", "branch")]


@pytest.fixture(scope="module")
def initial_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository in which neither "box-core" nor "box-lid", which requires it, has a release."""
    package = Package("box-core", tmp_path_factory.mktemp("initial"))
    files = {"pyproject.toml": (ROOT / "pyproject.toml").read_text(encoding="utf-8")}
    for name, requirement in (("box-core", "packaging"), ("box-lid", "box-core>=0.1")):
        module = name.replace("-", "_")
        files |= _require(name, requirement) | {
            f"packages/{name}/CHANGELOG.md": "# Changelog\n\n<!-- towncrier release notes start -->\n",
            f"packages/{name}/changes/+first.added.md": "Everything.\n",
            f"packages/{name}/src/{module}/__init__.py": "def fold(side: int) -> int:\n    return side\n",
            f"packages/{name}/src/{module}/__about__.py": '__version__ = "0.1.0"\n',
        }
    package.git("init", "--quiet", "--initial-branch=main")
    package.git("config", "user.name", "A Maintainer")
    package.git("config", "user.email", "maintainer@example.org")
    # A developer's global settings must not matter.
    package.git("config", "commit.gpgsign", "false")
    package.git("config", "tag.gpgsign", "false")
    package.git("config", "core.hooksPath", "/dev/null")
    _commit(package, files)
    return package.root


@pytest.fixture(scope="module")
def tagged_root(initial_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the repository after box-core 0.1.0, with a compatible change since."""
    package = Package("box-core", shutil.copytree(initial_root, tmp_path_factory.mktemp("released") / "box"))
    _release(package, "minor")
    change = {
        "packages/box-core/src/box_core/fresh.py": "x = 1\n",
        "packages/box-core/changes/+fresh.added.md": "`fresh`.\n",
    }
    _commit(package, change)
    return package.root


@pytest.fixture
def initial(initial_root: Path, tmp_path: Path) -> Package:
    """Return the package box-core without any release, on a branch."""
    package = Package("box-core", shutil.copytree(initial_root, tmp_path / "box"))
    package.git("switch", "--quiet", "--create", "release")
    return package


@pytest.fixture
def tagged(tagged_root: Path, tmp_path: Path) -> Package:
    """Return the package box-core after its release 0.1.0, on a branch."""
    package = Package("box-core", shutil.copytree(tagged_root, tmp_path / "box"))
    package.git("switch", "--quiet", "--create", "release")
    return package


def test_release_is_one_commit(initial: Package) -> None:
    parent = initial.git("rev-parse", "HEAD")

    release.make(initial, release.check_release(initial, "0.1.0"))

    notes = (initial.folder / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## 0.1.0 (" in notes
    assert "- Everything." in notes
    assert initial.fragments == []
    assert initial.git("log", "-1", "--format=%s %P") == f"Release box-core 0.1.0 {parent}"
    assert initial.git("status", "--porcelain") == ""
    assert initial.git("tag") == ""


def test_next_release_has_its_fragments(tagged: Package) -> None:
    release.make(tagged, release.check_release(tagged, "minor"))

    assert tagged.version == Version("0.2.0")
    assert tagged.releases == [Version("0.1.0"), Version("0.2.0")]
    assert "- `fresh`." in (tagged.folder / "CHANGELOG.md").read_text(encoding="utf-8")


def test_rehearsal(initial: Package) -> None:
    """One pull request releases two packages; another one of them alone, which leaves the other behind."""
    lid = Package("box-lid", initial.root)
    for package in (initial, lid):
        release.make(package, release.check_release(package, "0.1.0"))

    _merge(initial, "box-core", "box-lid")

    changes = {"packages/box-core/changes/+new.added.md": "New.\n", "packages/box-core/src/box_core/new.py": "x = 1\n"}
    broken = {"packages/box-lid/src/box_lid/__init__.py": "raise RuntimeError\n"}
    _commit(initial, changes | broken)
    initial.git("switch", "--quiet", "--create", "release")
    release.make(initial, release.check_release(initial, "minor"))

    (dependent,) = release.last_dependents(initial)
    _merge(initial)
    commit = dependent.rpartition("@")[2].partition("#")[0]
    # Not what is in the checkout.
    assert "def fold" in initial.git("show", f"{commit}:packages/box-lid/src/box_lid/__init__.py")
    initial.git("switch", "--quiet", "--detach", "box-core-v0.2.0")
    release.check_tag(initial, "box-core-v0.2.0")


def test_failure_changes_nothing(initial: Package, tmp_path: Path) -> None:
    """The checkout stays as it was if git refuses the commit."""
    state = _state(initial)
    _write(tmp_path, {"pre-commit": "#!/bin/sh\nexit 1\n"})
    (tmp_path / "pre-commit").chmod(0o755)
    initial.git("config", "core.hooksPath", str(tmp_path))

    with pytest.raises(subprocess.CalledProcessError):
        release.make(initial, Version("0.1.0"))

    assert _state(initial) == state


@pytest.mark.parametrize(
    ("change", "level", "message"),
    [
        ({"packages/box-core/changes/+fresh.added.md": ""}, "patch", "holds no changelog fragment: add one by"),
        (BROKEN_API, "patch", r"broke since .*: release a minor version or restore box_core\.fold \(`fold\(side\)`:"),
        ({}, "0.0.9", r"`0\.0\.9` must be major, minor, patch or a higher version"),
        ({}, "tiny", "`tiny` must be major, minor, patch or a higher version"),
        (
            {"packages/box-core/src/box_core/__about__.py": '__version__ = "0.1.2"\n'},
            "patch",
            r"version 0\.1\.2, which is above 0\.1\.1: release that",
        ),
    ],
    ids=["no fragment", "broken API", "lower", "unknown level", "below the source's"],
)
def test_broken_rule_is_an_error(tagged: Package, change: dict[str, str], level: str, message: str) -> None:
    """The error says what to do."""
    if change:
        _commit(tagged, change)

    with pytest.raises(ReleaseError, match=message):
        release.check_release(tagged, level)


@pytest.mark.parametrize(
    ("last", "version", "raises"),
    [("0.1.0", "0.1.1", True), ("0.1.0", "0.2.0", False), ("1.0.0", "1.1.0", True), ("1.0.0", "2.0.0", False)],
)
def test_api_may_break_by_level(
    tagged: Package, last: str, version: str, raises: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below 1.0 a minor may break the API, from 1.0 on only a major; what breaks is printed."""
    if last != "0.1.0":
        tagged.git("tag", f"box-core-v{last}", "box-core-v0.1.0^{commit}")
    _commit(tagged, BROKEN_API)

    if raises:
        with pytest.raises(ReleaseError, match="the API broke"):
            release.check_api(tagged, Version(last), Version(version))
    else:
        release.check_api(tagged, Version(last), Version(version))
        assert "breaks box_core.fold" in capsys.readouterr().out


def test_protected_branch_is_an_error(initial: Package) -> None:
    initial.git("switch", "--quiet", "main")

    with pytest.raises(ReleaseError, match="main takes releases by pull request: git switch --create release"):
        release.check_release(initial, "minor")


def test_command_prints_the_error_and_exits_with_1(
    initial: Package, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "ROOT", initial.root)

    code = release.main(["make", "box-lid", "minor"])

    message = (
        "box-lid is not released: box-lid requires box-core>=0.1, and no release of it fits (it has none): "
        "release box-core first, or change the range in packages/box-lid/pyproject.toml.\n"
    )
    assert (code, capsys.readouterr().err) == (1, message)


def test_package_without_changes_is_an_error(tagged: Package) -> None:
    """Tests are not published."""
    _commit(tagged, {"packages/box-core/src/box_core/fresh.py": "", "packages/box-core/tests/test_fold.py": "x = 1\n"})

    with pytest.raises(ReleaseError, match=r"nothing that box-core publishes changed since 0\.1\.0"):
        release.check_release(tagged, "patch")


def test_range_above_all_releases_is_an_error(tagged: Package) -> None:
    """A peer must be released before the package that requires it."""
    _commit(tagged, _require("box-lid", "box-core>=0.1.1"))

    with pytest.raises(ReleaseError, match=r"no release of it fits \(the last is 0\.1\.0\): release box-core first"):
        release.check_release(Package("box-lid", tagged.root), "minor")


def test_oldest_peers_are_installed_from_their_commit(tagged: Package) -> None:
    lid, commit = Package("box-lid", tagged.root), tagged.git("rev-parse", "box-core-v0.1.0^{commit}")
    release.make(tagged, release.check_release(tagged, "minor"))
    expected = f"box-core @ git+{tagged.root.as_uri()}@{commit}#subdirectory=packages/box-core"

    assert release.oldest_peers(lid) == [expected]


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("box-core-v0.2.0", r"expected 'box-core-v0\.1\.0'"),
        ("box-core-v0.1.0", r"has no notes of 0\.1\.0, or packages/box-core/changes still holds some"),
    ],
)
def test_invalid_tag_is_an_error(initial: Package, tag: str, message: str) -> None:
    """A tag must name the version of its commit, and the commit must have notes."""
    with pytest.raises(ReleaseError, match=message):
        release.check_tag(initial, tag)


def test_tag_outside_the_default_branch_is_an_error(initial: Package) -> None:
    _commit(initial, {"note.txt": "unseen\n"})

    with pytest.raises(ReleaseError, match="not on main, where releases are merged: merge it and tag again"):
        release.check_tag(initial, "box-core-v0.1.0")
