"""The tests under other torches and other Lightnings than the default row's."""

from __future__ import annotations

from pathlib import Path

import nox
from packaging.version import Version

from sessions.environments import own_machine, removed_afterwards
from sessions.packages import PACKAGES, ROOT, closure, group, own_group

# One file per torch that the simulator is tested with.
TORCH_ROWS = sorted(ROOT.glob("constraints/torch-*.txt"), key=lambda file: Version(file.stem.removeprefix("torch-")))
# One file per Lightning, beside the default's, that the packages are tested with; and the tests that are run with each:
# those of what Lightning decides, or brings along in another way.
LIGHTNING_ROWS = sorted(
    ROOT.glob("constraints/lightning-*.txt"), key=lambda file: Version(file.stem.removeprefix("lightning-"))
)
MINORS = (
    "hpu-compat/tests",
    "hpu-core/tests",
    "hpu-ddp/tests/test_training.py",
    "hpu-ddp/tests/test_fabric.py",
    "hpu-deepspeed/tests",
    "hpu-precision/tests",
)
each_torch = nox.parametrize("row", [nox.param(file, id=file.stem.removeprefix("torch-")) for file in TORCH_ROWS])
each_minor = nox.parametrize(
    ("row", "distribution"),
    [
        *(nox.param(file, "lightning", id=file.stem.removeprefix("lightning-")) for file in LIGHTNING_ROWS),
        # The same framework under its other name.
        nox.param(LIGHTNING_ROWS[-1], "pytorch-lightning", id="pytorch-lightning"),
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
        tests = session.posargs or [f"{package.path}/tests"]
        session.run("pytest", *tests, env=own_machine(session) | {"HPU_SIM_CACHE": str(cache)})


@nox.session(default=False)
@each_minor
def minors(session: nox.Session, row: Path, distribution: str) -> None:
    """Run the tests of what Lightning decides with another Lightning, and remove the environment afterwards."""
    # hpu-compat's extra "all" names its peers.
    packages = closure(sorted({test.partition("/")[0] for test in MINORS}), ["all"])
    editable = [option for package in packages for option in ("-e", f"./{package.path}[{distribution}]")]
    with removed_afterwards(session):
        # Of the packages' groups only what does not bring the other distribution along.
        more = ("deepspeed", "jsonargparse[signatures]", "scikit-learn", "-e", "./packages/hpu-sim")
        session.install("-c", str(row), *editable, *more, *group("test"))
        for test in session.posargs or MINORS:
            # What an old Lightning has to say about a torch that is newer is no fault of these packages.
            environment = own_machine(session) | {"PYTHONWARNINGS": "ignore"}
            session.run("pytest", "-W", "ignore", f"packages/{test}", env=environment)
