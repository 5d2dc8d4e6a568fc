"""Check that no install of these packages replaces the torch of a Gaudi image.

torch on such an image is Intel's own build, such as 2.11.0a0+git009b5f6, and another build cannot use the cards. For
each SynapseAI release, an empty distribution of that name and version is installed into an environment. pip is asked
what it would install there for all packages of this repository: without constraints, and with Lightning under the
release's constraints. For the newest release pip also installs them.

Usage: `python scripts/check_torch_kept.py [RELEASE ...]`; `nox -s torch_kept` calls it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import constraints

# Suffix of the vendor's builds; the exact one does not matter.
SUFFIX = "a0+git009b5f6"


def fake_torch_wheel(version: str, folder: Path) -> Path:
    """Write an empty wheel of torch.

    Args:
        version: "2.11.0a0+git009b5f6".
        folder: Where to write it.
    """
    path = folder / f"torch-{version}-py3-none-any.whl"
    info = f"torch-{version}.dist-info"
    tags = "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Environment:
    """A virtual environment without pip.

    Args:
        folder: Where to create it.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder)
        self._python = folder / "bin" / "python"

    def pip(self, *arguments: str) -> str:
        """Run pip on the environment and return what it prints.

        Raises:
            RuntimeError: pip failed; the text is pip's.
        """
        command = [sys.executable, "-m", "pip", "--python", str(self._python), *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments.
        if process.returncode:
            raise RuntimeError(f"pip {' '.join(arguments)}:\n{process.stderr}")
        return process.stdout

    def dry_run_install(self, *arguments: str) -> dict[str, str]:
        """Return the versions of the distributions that an install would install, by name."""
        report = json.loads(self.pip("install", "--quiet", "--dry-run", "--report", "-", *arguments))
        return {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in report["install"]}


def build(folder: Path) -> dict[Path, set[str]]:
    """Build the wheels of this repository's packages.

    Args:
        folder: Where to write them.

    Returns:
        The wheels, with the names of their extras.
    """
    sources = sorted(str(path.parent) for path in constraints.ROOT.glob("packages/*/pyproject.toml"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), *sources]
    subprocess.run(command, check=True)  # noqa: S603 - our own arguments.
    return {wheel: read_extras(wheel) for wheel in sorted(folder.glob("hpu_*.whl"))}


def read_extras(wheel: Path) -> set[str]:
    """Return the names of a wheel's extras."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return set(message_from_bytes(archive.read(metadata)).get_all("Provides-Extra", []))


def check(row: dict[str, Any], wheels: dict[Path, set[str]], environment: Environment, folder: Path) -> list[str]:
    """Ask pip about one release.

    Args:
        row: A row of compat.toml.
        wheels: As `build` returns them.
        environment: Where to install the empty torch.
        folder: Where to write its wheel.

    Returns:
        The installs that would replace torch.
    """
    version = f"{row['torch']}{SUFFIX}"
    environment.pip("install", "--quiet", "--no-deps", "--force-reinstall", str(fake_torch_wheel(version, folder)))
    alone = [str(wheel) for wheel in wheels]
    with_lightning = [f"{wheel}[lightning]" for wheel, extras in wheels.items() if "lightning" in extras]
    installs = {"alone": alone, "with Lightning": ["-c", str(constraints_file(row)), *alone, *with_lightning]}
    problems = []
    for name, arguments in installs.items():
        installed = environment.dry_run_install(*arguments)
        if "torch" in installed:
            problems.append(f"{name}: torch {version} would become {installed['torch']}")
    return problems


def constraints_file(row: dict[str, Any]) -> Path:
    """Return the constraints of a release for a machine with cards."""
    return constraints.ROOT / "constraints" / f"gaudi-{row['release']}.txt"


def main(arguments: list[str] | None = None) -> int:
    """Check every release.

    Args:
        arguments: The command line, `sys.argv[1:]` if None.

    Returns:
        0, or 1 if an install would replace torch.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", help="SynapseAI releases; all if none is given")
    names = parser.parse_args(arguments).releases
    rows = [row for row in constraints.load()["release"] if "torch" in row and (not names or row["release"] in names)]
    problems = []
    results: dict[tuple[str, ...], list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="torch-kept-") as temporary:
        folder = Path(temporary)
        environment = Environment(folder / "environment")
        wheels = build(folder)
        for row in rows:
            # pip is slow, so releases with the same torch and constraints are checked once; DeepSpeed is not installed.
            lines = constraints_file(row).read_text(encoding="utf-8").splitlines()
            key = (row["torch"], *(line for line in lines if not line.startswith(("#", "deepspeed"))))
            if key not in results:
                results[key] = check(row, wheels, environment, folder)
            found = [f"{row['release']}, {problem}" for problem in results[key]]
            print(f"{row['release']}: {'; '.join(found) or 'torch is kept'}", flush=True)
            problems += found
        version = f"{rows[-1]['torch']}{SUFFIX}"
        environment.pip("install", "--quiet", *map(str, wheels))
        installed = {item["name"]: item["version"] for item in json.loads(environment.pip("list", "--format=json"))}
        if installed["torch"] != version:
            problems.append(f"torch {version} became {installed['torch']}")
        print(f"{rows[-1]['release']}, installed: torch {installed['torch']}", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
