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


@nox.session(default=False, tags=["gaudi"], venv_params=["--system-site-packages"])
def gaudi(session: nox.Session) -> None:
    """Run the tests marked `hpu` on the cards of this machine, with the torch of its image; arguments are pytest's."""
    installed = json.loads(str(session.run("python", "-m", "pip", "list", "--format=json", silent=True)))
    versions: dict[str, str] = {each["name"]: each["version"] for each in installed}
    if BRIDGE not in versions:
        session.skip(f"Requires: a Gaudi machine; this Python has no {BRIDGE}, which is part of Intel's images")
    release = ".".join(versions[BRIDGE].split(".")[:3])
    table = constraints.load()
    if release not in [row["release"] for row in table["release"]]:
        session.error(f"{BRIDGE} is of SynapseAI {release}, which has no row in compat.toml: add one")

    lightning = (f"{package.name}[lightning]" for package in PACKAGES.values() if "lightning" in package.extras)
    # pip refuses a requirement that would replace the torch of the image.
    torch = Path(session.create_tmp(), "torch.txt").resolve()
    torch.write_text(f"torch=={versions['torch']}\n", encoding="utf-8")
    requirements = editable_requirements("hpu-sim[pytest]", *lightning, *group("test"))
    session.install("-c", str(torch), "-c", constraints.file_of(table, release), *requirements)
    count = session.run("python", "-c", "import hpu_core; print(hpu_core.device_count())", silent=True)
    if count is None or int(str(count)) == 0:
        session.skip("Requires: a Gaudi card; `hpu-info` says why none is found")
    session.run("pytest", "-m", "hpu", *(session.posargs or TESTS))
