"""What a release asks for, and that it is made whole or not at all, on a small repository of two packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import release
import release_rules as rules
from packaging.version import Version
from release_rules import Checkout, Package, ReleaseError

ROOT = Path(__file__).parent.parent
PYPROJECT = """
[project]
name = "{name}"
dependencies = ["{requirement}"]
"""


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files, or remove those without content."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text, encoding="utf-8")
        else:
            path.unlink()


def commit(checkout: Checkout, files: dict[str, str]) -> None:
    """Change files and commit that."""
    write(checkout.root, files)
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "a change")


def state(checkout: Checkout) -> tuple[str, ...]:
    """Give everything of a checkout that a release that fails must leave alone."""
    questions = ("rev-parse HEAD", "status --porcelain", "tag", "worktree list", "branch")
    return tuple(checkout.git(*question.split()) for question in questions)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository in which neither "box-core" nor "box-lid", which requires it, has a release."""
    root = tmp_path_factory.mktemp("template")
    files = {"towncrier.toml": (ROOT / "towncrier.toml").read_text(encoding="utf-8")}
    for name, requirement in (("box-core", "packaging"), ("box-lid", "box-core>=0.1,<0.2")):
        module = name.replace("-", "_")
        files |= {
            f"packages/{name}/pyproject.toml": PYPROJECT.format(name=name, requirement=requirement),
            f"packages/{name}/CHANGELOG.md": "# Changelog\n\n<!-- towncrier release notes start -->\n",
            f"packages/{name}/changes/+first.added.md": "Everything.\n",
            f"packages/{name}/src/{module}/__init__.py": "def fold(side: int) -> int:\n    return side\n",
            f"packages/{name}/src/{module}/__about__.py": '__version__ = "0.1.0"\n',
        }
    checkout = Checkout(root)
    checkout.git("init", "--quiet", "--initial-branch=main")
    checkout.git("config", "user.name", "A Maintainer")
    checkout.git("config", "user.email", "maintainer@example.org")
    # What a developer has set for every repository is none of this one's business.
    checkout.git("config", "commit.gpgsign", "false")
    checkout.git("config", "tag.gpgsign", "false")
    checkout.git("config", "core.hooksPath", "/dev/null")
    commit(checkout, files)
    return root


@pytest.fixture(scope="module")
def template_after_core(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the same repository after box-core 0.1.0, with a compatible change since."""
    root = shutil.copytree(template, tmp_path_factory.mktemp("after") / "box")
    release.make(Checkout(root), release.plan(Checkout(root), "box-core", "minor"))
    change = {
        "packages/box-core/src/box_core/fresh.py": "x = 1\n",
        "packages/box-core/changes/+fresh.added.md": "`fresh`.\n",
    }
    commit(Checkout(root), change)
    return root


@pytest.fixture
def before(template: Path, tmp_path: Path) -> Checkout:
    """Give a repository without any release."""
    return Checkout(shutil.copytree(template, tmp_path / "box"))


@pytest.fixture
def after(template_after_core: Path, tmp_path: Path) -> Checkout:
    """Give a repository after box-core 0.1.0."""
    return Checkout(shutil.copytree(template_after_core, tmp_path / "box"))


@pytest.fixture
def quick_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the place of towncrier, whose start is most of what a release takes, where notes are not what matters."""

    def write_notes(package: Package, version: Version) -> str:
        for note in package.notes:
            note.unlink()
        package.changelog.write_text(f"## {version}\n", encoding="utf-8")
        return f"## {version}"

    monkeypatch.setattr(release, "write_notes", write_notes)


@pytest.mark.parametrize(
    ("last", "wanted", "expected"),
    [
        ("0.0.0", "minor", "0.1.0"),
        ("0.1.9", "patch", "0.1.10"),
        ("0.1.9", "minor", "0.2.0"),
        ("0.9.3", "major", "1.0.0"),
        ("1.2.3", "major", "2.0.0"),
        ("1.2.3", "1.10.0", "1.10.0"),
    ],
)
def test_next_version(last: str, wanted: str, expected: str) -> None:
    """A level raises its number and clears those behind it; a version is taken as it is."""
    assert rules.next_version(Version(last), wanted) == Version(expected)


@pytest.mark.parametrize("wanted", ["0.2", "0.2.0rc1", "v0.2.0", "01.2.0", "tiny", "0.1.9", "0.1.10"])
def test_other_versions_are_refused(wanted: str) -> None:
    """A version is three numbers, and above the last release's as numbers, not as text."""
    with pytest.raises(ReleaseError, match=r"three numbers such as 0\.2\.0, got|not newer than the last release"):
        rules.next_version(Version("0.1.10"), wanted)


@pytest.mark.parametrize(
    ("last", "version", "expected"),
    [
        ("0.1.0", "0.1.1", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.0.0", "1.1.0", False),
        ("1.9.0", "2.0.0", True),
    ],
)
def test_breaking_releases(last: str, version: str, expected: bool) -> None:
    """Below 1.0 a minor may break the API, from then on only a major."""
    assert rules.may_break(Version(last), Version(version)) is expected


def test_release_is_one_commit_and_a_tag(before: Checkout) -> None:
    """A release carries its version and notes in one commit on top, and an annotated tag with the same notes."""
    parent = before.git("rev-parse", "HEAD")

    release.make(before, release.plan(before, "box-core", "0.1.5"))

    package = Package("box-core", before.root)
    assert package.version == Version("0.1.5")
    assert "## 0.1.5 (" in package.changelog.read_text(encoding="utf-8")
    assert package.notes == []
    assert before.git("log", "-1", "--format=%s %P") == f"release box-core v0.1.5 {parent}"
    assert before.git("rev-parse", "box-core-v0.1.5^{commit}") == before.git("rev-parse", "HEAD")
    assert "- Everything." in before.git("tag", "--list", "--format=%(contents)", "box-core-v0.1.5")
    assert before.git("status", "--porcelain") == ""


def test_version_may_have_been_raised_before(after: Checkout) -> None:
    """A version that a sibling's floor has asked for already is released as it stands."""
    commit(after, {"packages/box-core/src/box_core/__about__.py": '__version__ = "0.1.1"\n'})

    assert release.plan(after, "box-core", "patch").version == Version("0.1.1")


@pytest.mark.usefixtures("quick_notes")
def test_dry_run_changes_nothing(
    before: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run prints the commit and the tag, and makes neither."""
    monkeypatch.setattr(release, "ROOT", before.root)
    earlier = state(before)

    code = release.main(["make", "box-core", "--dry-run", "minor"])

    assert code == 0
    assert "commit: release box-core v0.1.0" in (shown := capsys.readouterr().out)
    assert "tag: box-core-v0.1.0" in shown
    assert state(before) == earlier


@pytest.mark.parametrize(
    ("hook", "script"),
    [
        pytest.param("pre-commit", "exit 1", id="commit"),
        pytest.param("reference-transaction", 'test "$1" != prepared || ! grep -q refs/tags/', id="tag"),
        pytest.param("reference-transaction", 'test "$1" != prepared || ! grep -q refs/heads/main', id="branch"),
    ],
)
@pytest.mark.usefixtures("quick_notes")
def test_failure_midway_leaves_nothing_behind(before: Checkout, tmp_path: Path, hook: str, script: str) -> None:
    """Whether git refuses the commit, the tag or the branch, the checkout stays as it was."""
    plan = release.plan(before, "box-core", "minor")
    earlier = state(before)
    write(tmp_path, {hook: f"#!/bin/sh\n{script}\n"})
    (tmp_path / hook).chmod(0o755)
    before.git("config", "core.hooksPath", str(tmp_path))

    with pytest.raises(subprocess.CalledProcessError):
        release.make(before, plan)

    assert state(before) == earlier


@pytest.mark.parametrize(
    ("change", "wanted", "message"),
    [
        ({"packages/box-core/changes/+fresh.added.md": ""}, "patch", "holds no note for the changelog: add one by"),
        (
            {"packages/box-core/src/box_core/__init__.py": "def fold() -> int:\n    return 1\n"},
            "patch",
            r"which 0\.1\.1 may not do: release 0\.2\.0 or mend box_core\.fold \(`fold\(side\)`: \*Parameter",
        ),
        ({}, "minor", r"box-lid requires box-core<0\.2,>=0\.1, which excludes 0\.2\.0: widen that range in"),
        (
            {"packages/box-core/src/box_core/__about__.py": '__version__ = "0.1.2"\n'},
            "patch",
            r"carries 0\.1\.2 already, which is above 0\.1\.1: release that, or lower it",
        ),
    ],
    ids=["no note", "broken API", "excluded by a sibling", "below the source's"],
)
def test_refusals(after: Checkout, change: dict[str, str], wanted: str, message: str) -> None:
    """A release that breaks a rule is a sentence that says what to do."""
    if change:
        commit(after, change)

    with pytest.raises(ReleaseError, match=message):
        release.plan(after, "box-core", wanted)


def test_minor_below_one_may_break(after: Checkout) -> None:
    """Below 1.0 a minor may break the API, and says what breaks."""
    broken = "def fold() -> int:\n    return 1\n"
    pyproject = PYPROJECT.format(name="box-lid", requirement="box-core>=0.1,<0.3")
    change = {
        "packages/box-core/src/box_core/__init__.py": broken,
        "packages/box-lid/pyproject.toml": pyproject,
    }
    commit(after, change)

    assert release.plan(after, "box-core", "minor").breakages == [
        "box_core.fold (`fold(side)`: *Parameter was removed*)"
    ]


def test_what_a_class_inherits_from_a_sibling_is_its_api(after: Checkout) -> None:
    """A method that moves to a base class in a sibling does not break the API."""
    method = "    def close(self) -> int:\n        return 1\n"
    commit(after, {"packages/box-lid/src/box_lid/lid.py": f"class Lid:\n{method}"})
    after.git("tag", "box-lid-v0.1.0")
    moved = {
        "packages/box-core/src/box_core/part.py": f"class Part:\n{method}",
        "packages/box-lid/src/box_lid/lid.py": "from box_core.part import Part\n\n\nclass Lid(Part):\n    pass\n",
    }
    commit(after, moved)

    assert rules.check_api(after, Package("box-lid", after.root), Version("0.1.0"), Version("0.1.1")) == []


def test_uncommitted_change_is_refused(before: Checkout) -> None:
    """What is not committed would be missing from the release."""
    write(before.root, {"note.txt": "later\n"})

    with pytest.raises(ReleaseError, match=r"not clean \(\?\? note\.txt\): commit or remove that first"):
        release.plan(before, "box-core", "minor")


def test_other_branch_is_refused(before: Checkout) -> None:
    """Releases are made on the default branch."""
    before.git("switch", "--quiet", "--create", "topic")

    with pytest.raises(ReleaseError, match="releases are made on main, and topic is checked out: git switch main"):
        release.plan(before, "box-core", "minor")


def test_default_branch_is_the_remotes(before: Checkout) -> None:
    """A clone knows the default branch of where it came from."""
    before.git("update-ref", "refs/remotes/origin/trunk", "HEAD")
    before.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")

    assert before.default_branch() == "trunk"


def test_refusal_is_a_sentence_and_a_failure(
    before: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 1 and one sentence, so that the session ends with it, too."""
    monkeypatch.setattr(release, "ROOT", before.root)

    code = release.main(["make", "box-lid", "minor"])

    sentence = (
        "box-lid is not released: box-lid requires box-core<0.2,>=0.1, and no release of it fits (it has none yet): "
        "release box-core first, or mend the range in packages/box-lid/pyproject.toml.\n"
    )
    assert (code, capsys.readouterr().err) == (1, sentence)


def test_nothing_new_is_refused(after: Checkout) -> None:
    """A package that publishes what it published before has nothing to release."""
    commit(after, {"packages/box-core/src/box_core/fresh.py": "", "packages/box-core/tests/test_fold.py": "x = 1\n"})

    with pytest.raises(ReleaseError, match=r"nothing that box-core publishes changed since box-core-v0\.1\.0"):
        release.plan(after, "box-core", "patch")


def test_floor_above_the_releases_is_refused(after: Checkout) -> None:
    """What a package requires of a sibling must have been released before it."""
    pyproject = PYPROJECT.format(name="box-lid", requirement="box-core>=0.1.1,<0.2")
    commit(after, {"packages/box-lid/pyproject.toml": pyproject})

    with pytest.raises(ReleaseError, match=r"no release of it fits \(the last is 0\.1\.0\): release box-core first"):
        release.plan(after, "box-lid", "minor")


def test_floors_are_the_oldest_that_fit_together(after: Checkout) -> None:
    """The oldest box-lid requires a newer box-core than the box with both, so that one is taken; pip gets the tags."""
    after.git("tag", "box-core-v0.1.1")
    lid = PYPROJECT.format(name="box-lid", requirement="box-core>=0.1.1,<0.2")
    commit(after, {"packages/box-lid/pyproject.toml": lid})
    after.git("tag", "box-lid-v0.1.0")
    box = '[project]\nname = "box"\ndependencies = ["box-core>=0.1,<0.2", "box-lid>=0.1"]\n'
    commit(after, {"packages/box/pyproject.toml": box})

    found = rules.floors(after, Package("box", after.root))

    assert found == {"box-core": Version("0.1.1"), "box-lid": Version("0.1.0")}
    assert release.requirements(after, found) == [
        f"box-core @ git+{after.root.as_uri()}@box-core-v0.1.1#subdirectory=packages/box-core",
        f"box-lid @ git+{after.root.as_uri()}@box-lid-v0.1.0#subdirectory=packages/box-lid",
    ]


def test_tag_that_was_made_is_published(after: Checkout) -> None:
    """What `make` makes passes the check of the workflow that publishes it, which checks out the tag alone."""
    after.git("switch", "--quiet", "--detach", "box-core-v0.1.0")

    plan = release.plan_of_tag(after, "box-core", "box-core-v0.1.0")

    assert (plan.last, plan.version) == (rules.NOTHING, Version("0.1.0"))


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("box-core-v0.2.0", r"expected 'box-core-v0\.1\.0'"),
        ("box-core-v0.1.0", r"has no notes of 0\.1\.0, or packages/box-core/changes still holds some"),
    ],
)
def test_tag_by_hand_is_not_published(before: Checkout, tag: str, message: str) -> None:
    """A tag that names another version, or a commit without notes, is refused."""
    with pytest.raises(ReleaseError, match=message):
        release.plan_of_tag(before, "box-core", tag)


def test_tag_off_the_default_branch_is_not_published(before: Checkout) -> None:
    """What never landed is not published, however it is tagged."""
    before.git("switch", "--quiet", "--create", "topic")
    commit(before, {"note.txt": "unseen\n"})

    with pytest.raises(ReleaseError, match="not on main, where releases are made: land it there and tag again"):
        release.plan_of_tag(before, "box-core", "box-core-v0.1.0")
