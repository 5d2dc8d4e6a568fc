"""The tests marked `hpu` on a machine with cards, where the torch of its image stays what it is."""

from __future__ import annotations

import json
from pathlib import Path

import nox

from sessions.environments import from_tree
from sessions.packages import PACKAGES, ROOT, group

# Comes with Intel's images and is on no package index; its version is the release's with a build number.
BRIDGE = "habana-torch-plugin"
MARKED = ("examples/ci", "tests/test_on_cards.py")
_VERSIONS = (
    "import importlib.metadata, json; "
    "print(json.dumps({d.name: d.version for d in importlib.metadata.distributions() if d.name}))"
)


@nox.session(default=False, tags=["gaudi"], venv_params=["--system-site-packages"])
def gaudi(session: nox.Session) -> None:
    """Run the tests marked `hpu` on the cards of this machine, with the torch of its image; arguments are pytest's."""
    present = versions(session)
    if BRIDGE not in present:
        session.skip(f"Requires: a Gaudi machine; this Python has no {BRIDGE}, which comes with Intel's images")
    release = ".".join(present[BRIDGE].split(".")[:3])
    constraints = f"constraints/gaudi-{release}.txt"
    if not (ROOT / constraints).is_file():
        session.error(f"{BRIDGE} is of SynapseAI {release}, which has no row in compat.toml: add one")

    lightning = (f"{package.name}[lightning]" for package in PACKAGES.values() if "lightning" in package.extras)
    arguments = ("-c", constraints, *from_tree("hpu-sim[pytest]", *lightning, *group("test")))
    torch = would_install(session, *arguments).get("torch")
    if torch is not None:
        session.error(f"pip would bring torch {torch}, and the image has {present.get('torch')}: nothing is installed")
    session.install(*arguments)
    cards = session.run("python", "-c", "import hpu_core; print(hpu_core.device_count())", silent=True)
    if cards is None or int(str(cards)) == 0:
        session.skip("Requires: a Gaudi card; `hpu-info` says why none is found")
    session.run("pytest", "-m", "hpu", *(session.posargs or MARKED))


def versions(session: nox.Session) -> dict[str, str]:
    """Give the versions of what is installed in a session's environment or visible from it, by name."""
    found: dict[str, str] = json.loads(str(session.run("python", "-c", _VERSIONS, silent=True)))
    return found


def would_install(session: nox.Session, *arguments: str) -> dict[str, str]:
    """Give the distributions that an install would bring, with their versions, and install nothing.

    Args:
        session: The running session.
        *arguments: As pip takes them.
    """
    report = Path(session.create_tmp()).resolve() / "report.json"
    dry = ("install", "--quiet", "--dry-run", "--report", str(report))
    session.run_install("python", "-m", "pip", *dry, *arguments)
    items = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in items}
