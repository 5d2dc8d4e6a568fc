"""Rules for every package under packages/."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement

from hpu_sim.common import frames

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
NAMES = [path.name for path in PACKAGES]
# Every import package; hpu-compat has two.
CONFIGURATION = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
COMPAT = tomli.loads((ROOT / "compat.toml").read_text(encoding="utf-8"))


def read_requirements(package: Path) -> list[Requirement]:
    """Return what a package and its extras require."""
    project = tomli.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = chain(project["dependencies"], *project.get("optional-dependencies", {}).values())
    return list(map(Requirement, texts))


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_license_is_a_copy_of_the_roots(package: Path) -> None:
    """A link out of the folder is unsafe in an sdist."""
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_folder_distribution_and_module_have_one_name(package: Path) -> None:
    project = tomli.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["name"] == package.name
    assert (package / "src" / package.name.replace("-", "_") / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_requirements_have_a_lower_bound(package: Path) -> None:
    """A requirement without one admits versions that nobody has tried."""
    external = [requirement for requirement in read_requirements(package) if requirement.name not in NAMES]

    assert [str(r) for r in external if not {">=", "==", "~="} & {part.operator for part in r.specifier}] == []


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_requirements_of_our_packages_have_no_upper_bound(package: Path) -> None:
    """Else each minor release of hpu-core would force a release of every package."""
    own = [requirement for requirement in read_requirements(package) if requirement.name in NAMES]

    assert [str(r) for r in own if not {">=", ""} >= {part.operator for part in r.specifier}] == []


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_no_requirement_replaces_the_torch_of_a_gaudi_image(package: Path) -> None:
    """Another build cannot use the cards. Intel's builds have versions such as 2.11.0a0+git009b5f6."""
    builds = [f"{row['torch']}a0+git009b5f6" for row in COMPAT["release"] if "torch" in row]
    torch = [requirement.specifier for requirement in read_requirements(package) if requirement.name == "torch"]

    sources = [file.read_text(encoding="utf-8") for file in package.glob("src/**/*.py")]
    assert torch or not any(re.search(r"^\s*(import|from) torch\b", source, re.MULTILINE) for source in sources)
    assert [(s, b) for s in torch for b in builds if not s.contains(b, prereleases=True)] == []


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_package_links_are_absolute(package: Path) -> None:
    """A package index shows the README alone, so a relative link is dead there; a link to a heading is not."""
    text = (package / "README.md").read_text(encoding="utf-8")

    assert re.findall(r"\]\((?!https?://|#)([^)]*)\)", re.sub(r"`[^`]*`", "", text)) == []


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_python_versions_are_those_of_the_workflow(package: Path) -> None:
    project = tomli.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")

    assert f"python: {json.dumps(named)}" in workflow


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_packages_require_hpu_core_alone(package: Path) -> None:
    """`nox -s lint` checks that a package imports what it requires.

    hpu-compat re-exports names of others, and hpu-lightning has no code.
    """
    peers = {requirement.name for requirement in read_requirements(package)} & set(NAMES)

    assert package.name in {"hpu-compat", "hpu-lightning"} or peers <= {package.name, "hpu-core"}


def test_mypy_finds_every_package() -> None:
    assert [path for path in CONFIGURATION["mypy"]["mypy_path"] if path.startswith("packages/")] == [
        f"packages/{name}/src" for name in NAMES
    ]


def test_the_newest_tested_torch_is_that_of_the_matrix() -> None:
    """hpu-sim warns of a newer one."""
    releases = COMPAT["simulator"]["torch"]
    source = (ROOT / "packages/hpu-sim/src/hpu_sim/device/build.py").read_text(encoding="utf-8")
    newest = max(tuple(map(int, release.split(".")[:2])) for release in releases)

    assert f"MAX_TORCH_VERSION: Final = {newest}" in source


def test_list_of_the_own_packages_is_whole() -> None:
    """Their functions are not the user's."""
    folders = {path.parent.name for path in ROOT.glob("packages/*/src/*/__init__.py")}

    assert folders <= frames._FRAMEWORKS
