"""The tests under other torches and other Lightnings than the default row's."""

from __future__ import annotations

from pathlib import Path

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement
from packaging.version import Version

from sessions.environments import (
    DEFAULT_ROW,
    chosen,
    install_alone,
    own_machine,
    removed_afterwards,
    whatever_others_warn_of,
)
from sessions.packages import PACKAGES, ROOT, group, own_group
from sessions.testing import SIDE_BY_SIDE

# One file per torch that the simulator is tested with.
TORCH_ROWS = sorted(ROOT.glob("constraints/torch-*.txt"), key=lambda file: Version(file.stem.removeprefix("torch-")))
# One file per Lightning, beside the default's, that the packages are tested with; and the tests that are run with each:
# those of what Lightning decides, or brings along in another way. What brings most from the index comes last.
LIGHTNING_ROWS = sorted(
    ROOT.glob("constraints/lightning-*.txt"), key=lambda file: Version(file.stem.removeprefix("lightning-"))
)
MINORS = {
    "hpu-core": ("tests",),
    "hpu-precision": ("tests",),
    "hpu-ddp": ("tests/test_training.py", "tests/test_fabric.py"),
    "hpu-compat": ("tests",),
    "hpu-deepspeed": ("tests",),
}
each_torch = nox.parametrize("row", [nox.param(file, id=file.stem.removeprefix("torch-")) for file in TORCH_ROWS])
each_minor = nox.parametrize(
    ("row", "distribution"),
    [
        *(nox.param(file, "lightning", id=file.stem.removeprefix("lightning-")) for file in LIGHTNING_ROWS),
        # The default's under the framework's other name.
        nox.param(ROOT / DEFAULT_ROW, "pytorch-lightning", id="pytorch-lightning"),
    ],
)


@nox.session(default=False)
@each_torch
def sim_torch(session: nox.Session, row: Path) -> None:
    """Build the simulated device for another torch and run its tests; takes gigabytes, which it removes afterwards."""
    package = PACKAGES["hpu-sim"]
    # In the environment, so that it goes with it.
    cache = Path(session.create_tmp()).resolve() / "hpu-sim"
    with removed_afterwards(session):
        # Not kept by pip either: where there is no CPU build of a torch, its CUDA build comes with gigabytes of CUDA.
        requirements = ("-e", f"./{package.path}", *group("test"), *own_group(package))
        session.install("--no-cache-dir", "-c", str(row), *requirements)
        tests = session.posargs or [*SIDE_BY_SIDE, f"{package.path}/tests"]
        session.run("pytest", *tests, env=own_machine(session) | {"HPU_SIM_CACHE": str(cache)})


@nox.session(default=False)
@each_minor
def minors(session: nox.Session, row: Path, distribution: str) -> None:
    """Run the tests of what Lightning decides with another Lightning; `-- hpu-core` chooses, and keeps what it took."""
    failed = []
    with removed_afterwards(session):
        for name in chosen(session, MINORS):
            package = PACKAGES[name]
            needed = by_name(distribution, f"{name}[lightning]", *own_group(package))
            install_alone(session, str(row), *needed, *group("test"))
            tests = (f"{package.path}/{test}" for test in MINORS[name])
            environment = own_machine(session) | whatever_others_warn_of()
            try:
                session.run("pytest", *SIDE_BY_SIDE, *tests, env=environment)
            except CommandFailed:
                failed.append(name)
    if failed:
        session.error(f"tests of {', '.join(failed)} failed")


def by_name(distribution: str, *requirements: str) -> list[str]:
    """Give requirements with the framework's other distribution, where they ask for it by the extra of that name."""
    changed = []
    for text in requirements:
        requirement = Requirement(text)
        if "lightning" in requirement.extras:
            requirement.extras = (requirement.extras - {"lightning"}) | {distribution}
        changed.append(str(requirement))
    return changed
