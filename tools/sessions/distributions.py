"""sdists and wheels: built, checked, and installed alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import nox

from sessions.environments import DEFAULT_CONSTRAINTS, install, isolated_sim_env
from sessions.packages import ROOT, Package, group, per_package, resolve_packages

if TYPE_CHECKING:
    from collections.abc import Iterable

DIST = ROOT / "dist"
# Compiles the device and trains on it, with nothing but hpu-sim's wheel.
TRAIN_ONE_STEP = """
import torch

layer = torch.nn.Linear(4, 1).to("hpu")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
losses = []
for _ in range(2):
    losses.append(layer(torch.ones(4, device="hpu")).square().sum())
    optimizer.zero_grad()
    losses[-1].backward()
    optimizer.step()
assert losses[1] < losses[0], losses
print("trained on one simulated card")
"""


@nox.session(default=False)
@per_package
def build(session: nox.Session, package: Package) -> None:
    """Build the sdists, the wheels from the sdists, and check both, in dist/; "build(hpu-core)" builds one package."""
    install(session, *group("build"))
    files = [str(file) for file in build_distributions(session, package, DIST / package.name)]
    session.run("twine", "check", "--strict", *files)
    wheels = (file for file in files if file.endswith(".whl"))
    session.run("check-wheel-contents", "--toplevel", ",".join(package.top_level), *wheels)


# A fresh environment each time, because modules left by an earlier run would hide a missing one.
@nox.session(default=False, reuse_venv=False, requires=["build"])
@per_package
def isolation(session: nox.Session, package: Package) -> None:
    """Install each wheel alone and import its modules, without and with its extras; "isolation(hpu-core)"."""
    script, constraints = str(ROOT / "tools" / "import_every_module.py"), str(ROOT / DEFAULT_CONSTRAINTS)
    wheel = find_wheel(package)
    # Outside the checkout, so that only the wheel provides the modules.
    session.chdir(session.create_tmp())
    session.log(f"installing {wheel.name} alone")
    session.install("-c", constraints, str(wheel), *required_wheels(package))
    for module in package.modules:
        session.run("python", "-I", script, module)
    if package.name == "hpu-sim":
        Path("train.py").write_text(TRAIN_ONE_STEP, encoding="utf-8")
        env = isolated_sim_env(session) | {"HPU_SIM_CACHE": session.create_tmp()}
        session.run("hpu-sim", "run", "--devices", "1", "train.py", env=env)
    if package.extras:
        extras = ",".join(package.extras)
        session.install("-c", constraints, f"{wheel}[{extras}]", *required_wheels(package, package.extras))
        for module in package.modules:
            session.run("python", "-I", script, module, "--complete")


@nox.session(default=False)
def constraints(session: nox.Session) -> None:
    """Generate constraints/, docs/compatibility.md and the packages' releases.json from compat.toml."""
    # Without constraints, because this session writes them.
    session.install(*group("constraints"))
    session.run("python", "tools/constraints.py", *session.posargs)


def build_distributions(session: nox.Session, package: Package, folder: Path) -> list[Path]:
    """Build a package's sdist, and its wheel from the sdist, reproducibly."""
    shutil.rmtree(folder, ignore_errors=True)
    # The commit's date, in seconds since 1970, becomes every file's.
    command = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
    date = str(session.run(*command, external=True, silent=True, log=False)).strip()
    # The constraints pin the build backend too, which writes its version into the wheel.
    env = {"SOURCE_DATE_EPOCH": date, "PIP_CONSTRAINT": str(ROOT / DEFAULT_CONSTRAINTS)}
    session.run("python", "-m", "build", "--outdir", str(folder), str(ROOT / package.path), silent=True, env=env)
    return sorted(folder.iterdir())


def find_wheel(package: Package) -> Path:
    """Return the wheel that the session `build` made.

    Raises:
        FileNotFoundError: If there is none, or more than one.
    """
    wheels = list((DIST / package.name).glob("*.whl"))
    if len(wheels) != 1:
        raise FileNotFoundError(f"dist/{package.name} must hold one wheel, found {wheels}: run nox -s build")
    return wheels[0]


def required_wheels(package: Package, extras: Iterable[str] = ()) -> list[str]:
    """Return the wheels of the other packages that a package and its extras require."""
    return [str(find_wheel(other)) for other in resolve_packages([package.name], extras) if other is not package]
