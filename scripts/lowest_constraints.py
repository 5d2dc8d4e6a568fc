"""Write constraints that pin the requirements of all packages to the lowest versions that they declare.

uv resolves them, with the index that uv's own settings name, together with the constraints that such a torch and such
a Lightning need by compat.toml. Tools of the tests are left out, because the tests' configuration is written for one
version of pytest.

Usage: `python scripts/lowest_constraints.py FILE`; `nox -s lowest_versions` calls it.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from itertools import chain
from pathlib import Path

import tomli
from packaging.requirements import Requirement

import constraints


def requirements(root: Path = constraints.ROOT) -> tuple[list[str], dict[str, str]]:
    """Read packages/*/pyproject.toml.

    Args:
        root: The repository.

    Returns:
        uv's requirements for all packages with their extras, and the lowest declared version by requirement.
    """
    lines: list[str] = []
    versions: dict[str, str] = {}
    for file in sorted(root.glob("packages/*/pyproject.toml")):
        project = tomli.loads(file.read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        lines.append(f"-e {file.parent}[{','.join(sorted(extras.keys() - {'pytest'}))}]")
        for requirement in map(Requirement, chain(project["dependencies"], *extras.values())):
            for bound in (part.version for part in requirement.specifier if part.operator == ">="):
                versions[requirement.name] = bound
    return lines, versions


def main(arguments: list[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the constraints file to write")
    file = parser.parse_args(arguments).file
    lines, versions = requirements()
    needed = constraints.related_constraints(constraints.load(), versions["torch"], [versions["lightning"]])
    limits = file.with_suffix(".in")
    limits.write_text("\n".join(needed), encoding="utf-8")
    uv = f"{sys.executable} -m uv pip compile --quiet --resolution lowest-direct --python {sys.executable}"
    options = f"--no-header --no-annotate --no-emit-package pip -c {limits} -o {file} -"
    command = shlex.split(f"{uv} {options}")
    subprocess.run(command, input="\n".join(lines), text=True, check=True)  # noqa: S603 - our own arguments.
    pinned = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("-e")]
    names = {Requirement(line).name for line in pinned}
    # The tests may install what such a torch limits and does not require, such as NumPy.
    unpinned = [line for line in needed if not line.startswith("#") and Requirement(line).name not in names]
    file.write_text("\n".join([*pinned, *unpinned, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
