"""Tests of scripts/lowest_constraints.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lowest_constraints

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """
[project]
name = "{name}"
dependencies = [{dependencies}]

[project.optional-dependencies]
more = ["torch>=2.0,<3"]
pytest = ["pytest>=7"]
"""


def test_requirements_of_all_packages_and_extras(tmp_path: Path) -> None:
    """Every package is installed with its extras, but without that of the tests' tool."""
    for name, dependencies in (("a", '"rich>=13"'), ("b", '"lightning>=2.0,!=2.6.2"')):
        (tmp_path / "packages" / name).mkdir(parents=True)
        text = PROJECT.format(name=name, dependencies=dependencies)
        (tmp_path / "packages" / name / "pyproject.toml").write_text(text, encoding="utf-8")

    lines, versions = lowest_constraints.requirements(tmp_path)

    assert lines == [f"-e {tmp_path}/packages/a[more]", f"-e {tmp_path}/packages/b[more]"]
    assert versions == {"rich": "13", "lightning": "2.0", "torch": "2.0", "pytest": "7"}


def test_min_versions_of_torch_and_lightning() -> None:
    _, versions = lowest_constraints.requirements()

    assert {"torch", "lightning"} <= versions.keys()
