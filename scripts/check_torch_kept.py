"""Check that no install of these packages replaces the torch of a Gaudi image.

torch on such an image is Intel's own build, such as 2.11.0a0+git009b5f6, and another build cannot use the cards. For
each SynapseAI release, an empty distribution of that name and version is installed into an environment. pip is asked
what it would install there for all packages of this repository: without constraints, and with Lightning under the
release's constraints. For the newest release pip also installs them.

Usage: `python scripts/check_torch_kept.py [RELEASE ...]`; `nox -s torch_kept` calls it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import tomli

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


def pip(*arguments: str, python: Path = Path(sys.executable)) -> str:
    """Run pip on an environment and return what it prints.

    Raises:
        RuntimeError: pip failed; the text is pip's.
    """
    command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments.
    if process.returncode:
        raise RuntimeError(f"pip {' '.join(arguments)}:\n{process.stderr}")
    return process.stdout


def build(folder: Path) -> list[tuple[str, bool]]:
    """Build the wheels of this repository's packages; return each with whether it has the extra "lightning"."""
    wheels = []
    for file in sorted(constraints.ROOT.glob("packages/*/pyproject.toml")):
        pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(file.parent))
        (wheel,) = folder.glob(f"{file.parent.name.replace('-', '_')}-*.whl")
        project = tomli.loads(file.read_text(encoding="utf-8"))["project"]
        wheels.append((str(wheel), "lightning" in project.get("optional-dependencies", {})))
    return wheels


def check(row: dict[str, Any], wheels: list[tuple[str, bool]], python: Path) -> list[str]:
    """Return the installs that would replace torch, or nothing.

    Args:
        row: A row of compat.toml.
        wheels: As `build` returns them.
        python: The environment, in which an empty torch is installed.
    """
    version = f"{row['torch']}{SUFFIX}"
    wheel = fake_torch_wheel(version, python.parent)
    pip("install", "--quiet", "--no-deps", "--force-reinstall", str(wheel), python=python)
    plain = [wheel for wheel, _ in wheels]
    with_lightning = [f"{wheel}[lightning]" for wheel, has_extra in wheels if has_extra]
    installs = {"alone": plain, "with Lightning": ["-c", str(constraints_file(row)), *plain, *with_lightning]}
    problems = []
    for name, arguments in installs.items():
        report = pip("install", "--quiet", "--dry-run", "--report", "-", *arguments, python=python)
        metadata = [item["metadata"] for item in json.loads(report)["install"]]
        problems += [f"{name}: torch {version} would become {m['version']}" for m in metadata if m["name"] == "torch"]
    return problems


def constraints_file(row: dict[str, Any]) -> Path:
    """Return the constraints of a release for a machine with cards."""
    return constraints.ROOT / "constraints" / f"gaudi-{row['release']}.txt"


def main(*names: str) -> int:
    """Check the named releases, or all; return 1 if an install would replace torch."""
    rows = [row for row in constraints.load()["release"] if "torch" in row and (not names or row["release"] in names)]
    problems = []
    results: dict[tuple[str, ...], list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="torch-kept-") as folder:
        venv.create(Path(folder, "environment"))
        python = Path(folder, "environment", "bin", "python")
        wheels = build(Path(folder))
        for row in rows:
            # pip is slow, so releases with the same torch and constraints are checked once; DeepSpeed is not installed.
            lines = constraints_file(row).read_text(encoding="utf-8").splitlines()
            key = (row["torch"], *(line for line in lines if not line.startswith(("#", "deepspeed"))))
            if key not in results:
                results[key] = check(row, wheels, python)
            found = [f"{row['release']}, {problem}" for problem in results[key]]
            print(f"{row['release']}: {'; '.join(found) or 'torch is kept'}", flush=True)
            problems += found
        pip("install", "--quiet", *(wheel for wheel, _ in wheels), python=python)
        installed = {item["name"]: item["version"] for item in json.loads(pip("list", "--format=json", python=python))}
    print(f"{rows[-1]['release']}, installed: torch {installed['torch']}", flush=True)
    return 1 if problems or not installed["torch"].endswith(SUFFIX) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
