"""Write constraints that pin every requirement of the packages to the lowest version that they admit.

Beside them stand the constraints that such a torch and such a Lightning bring with them, by compat.toml. What runs the
tests is left out, because the tests' configuration is written for one version of it.

Usage: `python scripts/floors.py FILE`; `nox -s floors` calls it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import constraints
import tomli
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Collection


class NoFloorError(ValueError):
    """A package requires something of which it does not say which version is the first that will do."""


def projects(root: Path = constraints.ROOT) -> dict[str, dict[str, Any]]:
    """Read the `[project]` tables of packages/*/pyproject.toml, by name.

    Args:
        root: The repository.
    """
    files = sorted(root.glob("packages/*/pyproject.toml"))
    tables = [tomli.loads(file.read_text(encoding="utf-8"))["project"] for file in files]
    return {table["name"]: table for table in tables}


def declared(packages: dict[str, dict[str, Any]], tools: Collection[str] = ()) -> dict[str, SpecifierSet]:
    """Give the versions that all packages together admit, of each requirement that comes from the index.

    Args:
        packages: As `projects` gives them.
        tools: Requirements to leave out.

    Raises:
        NoFloorError: A requirement has no lowest version.
    """
    admitted: dict[str, SpecifierSet] = {}
    for name, project in packages.items():
        groups = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
        for requirement in (Requirement(text) for group in groups for text in group):
            if requirement.name in packages or requirement.name in tools:
                continue
            if not {">=", "==", "~="} & {part.operator for part in requirement.specifier}:
                raise NoFloorError(f"{name} requires {str(requirement)!r}, which names no lowest version: add >=")
            admitted[requirement.name] = requirement.specifier & admitted.get(requirement.name, SpecifierSet())
    return admitted


def available(name: str) -> list[Version]:
    """Give the versions of a distribution that the index has for this Python.

    Raises:
        CalledProcessError: pip found none.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - pip, with our own words.
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("Available versions:"))
    return [Version(text.strip()) for text in line.partition(":")[2].split(",")]


def lines(table: dict[str, Any], lowest: dict[str, Version]) -> list[str]:
    """Give the file's lines.

    Args:
        table: compat.toml.
        lowest: The version of each requirement.
    """
    brought = constraints.companions(table, str(lowest["torch"]), [str(lowest["lightning"])])
    needed = [line for line in brought if not line.startswith("#") and Requirement(line).name not in lowest]
    return [*(f"{name}=={version}" for name, version in sorted(lowest.items())), *needed]


def main(arguments: list[str] | None = None) -> None:
    """Write the file.

    Args:
        arguments: The command line, `sys.argv[1:]` if None.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the constraints file to write")
    file = parser.parse_args(arguments).file
    root = tomli.loads((constraints.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools = {Requirement(text).name for text in root["dependency-groups"]["test"]}
    admitted = declared(projects(), tools)
    lowest = {name: min(specifier.filter(available(name))) for name, specifier in admitted.items()}
    text = "\n".join(lines(constraints.load(), lowest))
    print(text)
    file.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
