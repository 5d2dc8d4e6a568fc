"""Tests marked `hpu` on a machine with cards, which keep the torch of its image."""

from __future__ import annotations

import json
from pathlib import Path

import nox

import constraints
from sessions.environments import editable_requirements
from sessions.packages import PACKAGES, group

# Part of Intel's images and not on a package index; its version is the release's with a build number.
BRIDGE = "habana-torch-plugin"
TESTS = ("examples/ci", "tests/test_on_cards.py")
_PRINT_VERSIONS = (
    "import importlib.metadata, json; "
    "print(json.dumps({d.name: d.version for d in importlib.metadata.distributions() if d.name}))"
)


@nox.session(default=False, tags=["gaudi"], venv_params=["--system-site-packages"])
def gaudi(session: nox.Session) -> None:
    """Run the tests marked `hpu` on the cards of this machine, with the torch of its image; arguments are pytest's."""
    versions: dict[str, str] = json.loads(str(session.run("python", "-c", _PRINT_VERSIONS, silent=True)))
    if BRIDGE not in versions:
        session.skip(f"Requires: a Gaudi machine; this Python has no {BRIDGE}, which is part of Intel's images")
    release = ".".join(versions[BRIDGE].split(".")[:3])
    table = constraints.load()
    if release not in [row["release"] for row in table["release"]]:
        session.error(f"{BRIDGE} is of SynapseAI {release}, which has no row in compat.toml: add one")

    lightning = (f"{package.name}[lightning]" for package in PACKAGES.values() if "lightning" in package.extras)
    arguments = (
        "-c",
        constraints.file_of(table, release),
        *editable_requirements("hpu-sim[pytest]", *lightning, *group("test")),
    )
    torch = dry_run_install(session, *arguments).get("torch")
    if torch is not None:
        session.error(
            f"pip would install torch {torch} over {versions.get('torch')} of the image: nothing is installed"
        )
    session.install(*arguments)
    count = session.run("python", "-c", "import hpu_core; print(hpu_core.device_count())", silent=True)
    if count is None or int(str(count)) == 0:
        session.skip("Requires: a Gaudi card; `hpu-info` says why none is found")
    session.run("pytest", "-m", "hpu", *(session.posargs or TESTS))


def dry_run_install(session: nox.Session, *arguments: str) -> dict[str, str]:
    """Return the versions of the distributions that `pip install` with these arguments would install."""
    report = Path(session.create_tmp()).resolve() / "report.json"
    dry_run = ("install", "--quiet", "--dry-run", "--report", str(report))
    session.run_install("python", "-m", "pip", *dry_run, *arguments)
    items = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in items}
