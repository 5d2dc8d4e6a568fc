"""Show that no install of these packages replaces the torch of a Gaudi image.

On such an image, torch is Intel's own build, such as 2.11.0a0+git009b5f6, and where it is replaced the cards are lost.
So for each SynapseAI release, a distribution of that name and version, with nothing in it, is put into an environment,
and pip is asked what it would install there for all packages of this repository at once: bare, without constraints; and
with Lightning, by the release's constraints. For the newest release pip also does it.

Usage: `python scripts/torch_stays.py [RELEASE ...]`; `nox -s torch_stays` calls it.
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

# The suffix of a build of the vendor's; which one does not matter here.
SUFFIX = "a0+git009b5f6"


def stand_in(version: str, folder: Path) -> Path:
    """Write a wheel of a torch that holds nothing.

    Args:
        version: "2.11.0a0+git009b5f6".
        folder: Where to.
    """
    path = folder / f"torch-{version}-py3-none-any.whl"
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Environment:
    """An environment in which pip is asked.

    Args:
        folder: Where to make it.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder)
        self._python = folder / "bin" / "python"

    def pip(self, *arguments: str) -> str:
        """Run pip on the environment and give what it prints.

        Raises:
            RuntimeError: It failed; the text is its own.
        """
        command = [sys.executable, "-m", "pip", "--python", str(self._python), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip, with our own words.
        if done.returncode:
            raise RuntimeError(f"pip {' '.join(arguments)}:\n{done.stderr}")
        return done.stdout

    def would_install(self, *arguments: str) -> dict[str, str]:
        """Give the distributions that an install would bring, by name, with their versions."""
        report = json.loads(self.pip("install", "--quiet", "--dry-run", "--report", "-", *arguments))
        return {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in report["install"]}


def build(folder: Path) -> dict[Path, set[str]]:
    """Build the packages of this repository.

    Args:
        folder: Where to.

    Returns:
        The wheels, with the names of their extras.
    """
    sources = sorted(str(path.parent) for path in constraints.ROOT.glob("packages/*/pyproject.toml"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), *sources]
    subprocess.run(command, check=True)  # noqa: S603 - pip, with our own words.
    return {wheel: extras_of(wheel) for wheel in sorted(folder.glob("hpu_*.whl"))}


def extras_of(wheel: Path) -> set[str]:
    """Give the names of a wheel's extras."""
    with zipfile.ZipFile(wheel) as content:
        (metadata,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        return set(message_from_bytes(content.read(metadata)).get_all("Provides-Extra", []))


def check(row: dict[str, Any], wheels: dict[Path, set[str]], environment: Environment, folder: Path) -> list[str]:
    """Ask pip about one release.

    Args:
        row: Of compat.toml.
        wheels: As `build` gives them.
        environment: Where to.
        folder: For the stand-in.

    Returns:
        What is wrong; nothing where torch stays.
    """
    version = f"{row['torch']}{SUFFIX}"
    environment.pip("install", "--quiet", "--no-deps", "--force-reinstall", str(stand_in(version, folder)))
    bare = [str(wheel) for wheel in wheels]
    with_lightning = [f"{wheel}[lightning]" for wheel, extras in wheels.items() if "lightning" in extras]
    ways = {"bare": bare, "with Lightning and constraints": ["-c", str(pins(row)), *bare, *with_lightning]}
    problems = []
    for way, arguments in ways.items():
        brought = environment.would_install(*arguments)
        if "torch" in brought:
            problems.append(f"{way}: torch {version} would become {brought['torch']}")
    return problems


def pins(row: dict[str, Any]) -> Path:
    """Give the constraints file of a release for a machine with cards."""
    return constraints.ROOT / "constraints" / f"gaudi-{row['release']}.txt"


def asked(row: dict[str, Any]) -> str:
    """Give what a release's constraints say of the distributions that are installed here, which DeepSpeed is not."""
    lines = pins(row).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith(("#", "deepspeed")))


def main(arguments: list[str] | None = None) -> int:
    """Ask about every release.

    Args:
        arguments: The command line, `sys.argv[1:]` if None.

    Returns:
        0, or 1 where some install would replace torch.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", help="SynapseAI releases; all if none is given")
    chosen = parser.parse_args(arguments).releases
    rows = [row for row in constraints.load()["release"] if "torch" in row and (not chosen or row["release"] in chosen)]
    problems = []
    answers: dict[tuple[str, str], list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="torch-stays-") as temporary:
        folder = Path(temporary)
        environment = Environment(folder / "environment")
        wheels = build(folder)
        for row in rows:
            # Releases of the same torch with the same constraints are one question, and pip takes a while to answer.
            question = (row["torch"], asked(row))
            if question not in answers:
                answers[question] = check(row, wheels, environment, folder)
            found = [f"{row['release']}, {problem}" for problem in answers[question]]
            print(f"{row['release']}: {'; '.join(found) or 'torch stays'}", flush=True)
            problems += found
        newest = f"{rows[-1]['torch']}{SUFFIX}"
        environment.pip("install", "--quiet", *map(str, wheels))
        installed = {item["name"]: item["version"] for item in json.loads(environment.pip("list", "--format=json"))}
        if installed["torch"] != newest:
            problems.append(f"torch {newest} became {installed['torch']}")
        print(f"{rows[-1]['release']}, installed: torch {installed['torch']}", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
