"""Everything that is run on this repository, here and in CI; `nox -l` lists it.

Nothing is listed twice: packages are read from packages/, their siblings from their own requirements, groups from
the pyprojects and versions from compat.toml by way of constraints/default.txt.

`nox -R -s tests` reuses environments without installing again. Only nox itself is needed; packaging comes with it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nox
from packaging.requirements import Requirement
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

nox.needs_version = ">=2025.5.1"
# pip, so that the settings a user has made for pip (an index, a proxy, a cache) hold in every session.
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).resolve().parent
DIST = ROOT / "dist"
DEFAULT_ROW = "constraints/default.txt"
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
# The id under which `tests` runs the root's tests/, with every package installed.
TOGETHER = "together"


@dataclass(frozen=True)
class Package:
    """One folder under packages/.

    Attributes:
        name: The distribution, "hpu-core".
        modules: The import packages: "hpu_core", which holds the version, and others, if any.
        path: The folder, relative to the root.
        extras: Names of the optional dependency groups.
        dependencies: Requirements, by extra; "" holds the unconditional ones.
        groups: The package's own dependency groups.
    """

    name: str
    modules: tuple[str, ...]
    path: Path
    extras: tuple[str, ...]
    dependencies: dict[str, list[str]]
    groups: dict[str, Any]

    @property
    def tests(self) -> list[str]:
        """What pytest is given: the tests, and the source for its doctests."""
        return [f"{self.path}/tests", f"{self.path}/src"]

    @property
    def benches(self) -> list[Path]:
        """The scripts that time this package."""
        return sorted(self.path.glob("bench/*.py"))


def read_packages() -> dict[str, Package]:
    """Read packages/*/pyproject.toml.

    Returns:
        The packages by name, in alphabetical order.
    """
    packages = {}
    for file in sorted(ROOT.glob("packages/*/pyproject.toml")):
        content = nox.project.load_toml(file)
        project = content["project"]
        extras = project.get("optional-dependencies", {})
        packages[project["name"]] = Package(
            name=project["name"],
            modules=read_modules(file.parent, project["name"]),
            path=file.parent.relative_to(ROOT),
            extras=tuple(extras),
            dependencies={"": project["dependencies"], **extras},
            groups=content.get("dependency-groups", {}),
        )
    return packages


def read_modules(folder: Path, distribution: str) -> tuple[str, ...]:
    """Find a distribution's import packages, of which the one with its own name is the first."""
    own = distribution.replace("-", "_")
    found = sorted(path.parent.name for path in folder.glob("src/*/__init__.py"))
    return (own, *(name for name in found if name != own))


PACKAGES = read_packages()
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")

each_package = nox.parametrize("package", [nox.param(package, id=name) for name, package in PACKAGES.items()])
each_timed_package = nox.parametrize("package", [nox.param(p, id=p.name) for p in PACKAGES.values() if p.benches])
each_torch = nox.parametrize("row", [nox.param(file, id=file.stem.removeprefix("torch-")) for file in TORCH_ROWS])
each_minor = nox.parametrize(
    ("row", "distribution"),
    [
        *(nox.param(file, "lightning", id=file.stem.removeprefix("lightning-")) for file in LIGHTNING_ROWS),
        # The same framework under its other name.
        nox.param(LIGHTNING_ROWS[-1], "pytorch-lightning", id="pytorch-lightning"),
    ],
)
each_suite = nox.parametrize(
    "suite",
    [
        *(nox.param(name, id=name) for name in PACKAGES),
        nox.param(TOGETHER, id=TOGETHER),
    ],
)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, boundaries between packages, declared dependencies, metadata, fragments and generated files."""
    install(session, *group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    sources = sorted(str(file) for pattern in ("*.cpp", "*.h") for file in ROOT.glob(f"packages/*/src/**/{pattern}"))
    session.run("clang-format", "--dry-run", "--Werror", *sources)
    path = os.pathsep.join(str(ROOT / package.path / "src") for package in PACKAGES.values())
    session.run("lint-imports", "--no-cache", env={"PYTHONPATH": path})
    session.run("validate-pyproject", "pyproject.toml", *(f"{p.path}/pyproject.toml" for p in PACKAGES.values()))
    for package in PACKAGES.values():
        session.run("deptry", "--config", f"{package.path}/pyproject.toml", f"{package.path}/src")
        # Renders the notes of the next release, and fails on a fragment whose name says no type.
        draft_notes(session, package, silent=True)
    session.run("python", "scripts/constraints.py", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy --strict on every package with its tests, and on the code around them."""
    install(session, *group("types"), *PACKAGES, *(r for p in PACKAGES.values() for r in own_group(p)))
    # One run per package: two packages may have test modules of the same name.
    for package in PACKAGES.values():
        folders = [package.path / name for name in ("src", "tests", "third_party", "trials", "bench")]
        session.run("mypy", *(str(folder) for folder in folders if any(folder.rglob("*.py"))))
    session.run("mypy", "noxfile.py", "scripts", "reference", "examples", "tests")


@nox.session
@each_suite
def tests(session: nox.Session, suite: str) -> None:
    """Run a package's tests with only its declared siblings installed, or ("together") the root's with all."""
    install_suite(session, suite)
    session.run("pytest", *(session.posargs or [*side_by_side(suite), *suite_paths(suite)]))


@nox.session(default=False)
@each_suite
def coverage(session: nox.Session, suite: str) -> None:
    """Run the same tests and report the branches that none of them takes."""
    install_suite(session, suite, *group("coverage"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *(session.posargs or suite_paths(suite)))
    session.run("coverage", "combine")
    # What a package's tests reach of its siblings is none of their business.
    sources = "packages" if suite == TOGETHER else str(PACKAGES[suite].path)
    session.run("coverage", "report", f"--include={sources}/*")


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Train on two simulated Gaudis: examples/train_digits.py, lazy unless PT_HPU_LAZY_MODE is 0; `-- --devices 1`."""
    install(session, *group("demo"))
    environment = own_machine(session) | {"PT_HPU_LAZY_MODE": os.environ.get("PT_HPU_LAZY_MODE", "1")}
    options = session.posargs or ("--devices", "2")
    session.run("hpu-sim", "run", *options, "examples/train_digits.py", env=environment)


@nox.session(default=False)
@each_timed_package
def bench(session: nox.Session, package: Package) -> None:
    """Time what a package promises to be quick: every script in its bench/."""
    install(session, package.name, *own_group(package))
    for script in package.benches:
        session.run("python", str(script), *session.posargs, env=own_machine(session))


@nox.session(default=False)
def op_sweep(session: nox.Session) -> None:
    """Run every operator of torch's operator database on the simulated device against the CPU; `-- --dtype float32`."""
    install(session, "hpu-sim", *group("sweep"))
    session.run("python", "packages/hpu-sim/sweep/op_sweep.py", *session.posargs, env=own_machine(session))


@nox.session(default=False)
def third_party(session: nox.Session) -> None:
    """Train with DeepSpeed, accelerate and transformers, unmodified from the index, on the simulated device."""
    install(session, "hpu-sim", *group("third_party"), *group("test"))
    # The machine that the tests ask for, so that each runs here rather than in a process of its own.
    command = ("hpu-sim", "run", "--quiet", "--devices", "2", "-m", "pytest")
    environment = own_machine(session) | {"PT_HPU_LAZY_MODE": "1"}
    session.run(*command, *(session.posargs or ["packages/hpu-sim/third_party"]), env=environment)


@nox.session(default=False)
@each_torch
def sim_torch(session: nox.Session, row: Path) -> None:
    """Build the simulated device for another torch and run its tests; takes gigabytes, which it removes afterwards."""
    package = PACKAGES["hpu-sim"]
    # In the environment, so that it goes with it.
    cache = Path(session.create_tmp()).resolve() / "hpu-sim"
    try:
        # Not kept by pip either: where there is no CPU build of a torch, its CUDA build comes with gigabytes of CUDA.
        requirements = ("-e", f"./{package.path}", *group("test"), *own_group(package))
        session.install("--no-cache-dir", "-c", str(row), *requirements)
        tests = session.posargs or [f"{package.path}/tests"]
        session.run("pytest", *tests, env=own_machine(session) | {"HPU_SIM_CACHE": str(cache)})
    finally:
        # With arguments somebody is at work on it, and comes back.
        if not session.posargs:
            shutil.rmtree(session.virtualenv.location)


@nox.session(default=False)
def reference(session: nox.Session) -> None:
    """Run every code block of a folder's documents word for word on simulated cards: `-- FOLDER`."""
    if not session.posargs:
        session.skip("needs a folder with documents: nox -s reference -- FOLDER")
    install(session, *PACKAGES, *group("reference"), *(r for p in PACKAGES.values() for r in own_group(p)))
    session.run("python", "reference/run.py", *session.posargs, env=own_machine(session))


@nox.session(default=False)
def two_nodes(session: nox.Session) -> None:
    """Train on two machines, network namespaces of this one, and cut the cable; skipped where none can be made."""
    install_suite(session, "hpu-ddp")
    session.run("pytest", *session.posargs, "packages/hpu-ddp/trials/test_two_nodes.py")


@nox.session(default=False)
def killed_ranks(session: nox.Session) -> None:
    """Kill a rank in the middle of a training and resume it, twenty times."""
    install_suite(session, "hpu-ddp")
    session.run("pytest", *session.posargs, "packages/hpu-ddp/trials/test_killed_ranks.py")


@nox.session(default=False)
@each_minor
def minors(session: nox.Session, row: Path, distribution: str) -> None:
    """Run the tests of what Lightning decides with another Lightning, and remove the environment afterwards."""
    # hpu-compat's extra "all" names its peers.
    packages = closure(sorted({test.partition("/")[0] for test in MINORS}), ["all"])
    editable = [option for package in packages for option in ("-e", f"./{package.path}[{distribution}]")]
    try:
        # Of the packages' groups only what does not bring the other distribution along.
        more = ("deepspeed", "jsonargparse[signatures]", "scikit-learn", "-e", "./packages/hpu-sim")
        session.install("-c", str(row), *editable, *more, *group("test"))
        for test in session.posargs or MINORS:
            # What an old Lightning has to say about a torch that is newer is no fault of these packages.
            environment = own_machine(session) | {"PYTHONWARNINGS": "ignore"}
            session.run("pytest", "-W", "ignore", f"packages/{test}", env=environment)
    finally:
        # With arguments somebody is at work on it, and comes back.
        if not session.posargs:
            shutil.rmtree(session.virtualenv.location)


@nox.session(default=False)
@each_package
def build(session: nox.Session, package: Package) -> None:
    """Build the sdist, the wheel from the sdist, and check both; the products lie in dist/<package>."""
    install(session, *group("build"))
    folder = DIST / package.name
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(folder), str(package.path), silent=True)
    products = sorted(str(product) for product in folder.iterdir())
    session.run("twine", "check", "--strict", *products)
    wheels = (product for product in products if product.endswith(".whl"))
    session.run("check-wheel-contents", "--toplevel", ",".join(package.modules), *wheels)


# A fresh environment each time, because what an earlier run left behind is what this session looks for.
@nox.session(default=False, reuse_venv=False, requires=["build"])
@each_package
def isolation(session: nox.Session, package: Package) -> None:
    """Install a package's wheel alone and import every module of it, first without, then with its extras."""
    wheel = one_wheel(package)
    siblings = wheels_beside(package)
    script = str(ROOT / "scripts" / "import_every_module.py")
    # Far from the checkout, so that nothing but the wheel can answer an import.
    constraints = str(ROOT / DEFAULT_ROW)
    session.chdir(session.create_tmp())
    session.log(f"installing {wheel.name} alone")
    session.install("-c", constraints, str(wheel), *siblings)
    for module in package.modules:
        session.run("python", "-I", script, module)
    if package.extras:
        siblings = wheels_beside(package, package.extras)
        session.install("-c", constraints, f"{wheel}[{','.join(package.extras)}]", *siblings)
        for module in package.modules:
            session.run("python", "-I", script, module, "--complete")


@nox.session(default=False)
def constraints(session: nox.Session) -> None:
    """Generate constraints/, docs/compatibility.md and the packages' releases.json from compat.toml."""
    # Without constraints: they are what this session writes.
    session.install(*group("constraints"))
    session.run("python", "scripts/constraints.py", *session.posargs)


@nox.session(default=False)
def torch_stays(session: nox.Session) -> None:
    """Show for each SynapseAI release that no install of these packages replaces the torch of a Gaudi image."""
    session.install("-c", DEFAULT_ROW, *group("constraints"), "packaging")
    session.run("python", "scripts/torch_stays.py", *session.posargs)


@nox.session(default=False)
@each_package
def release_check(session: nox.Session, package: Package) -> None:
    """Check that a package may be released, and show its notes; `-- --tag hpu-core-v1.2.0` checks a tag, too."""
    parser = argparse.ArgumentParser(prog=f"nox -s 'release_check({package.name})' --")
    parser.add_argument("--tag", help="the tag that is to be released; it must name the package's version")
    tag = parser.parse_args(session.posargs).tag
    version = read_version(package)
    if tag is not None and tag != f"{package.name}-v{version}":
        session.error(f"tag {tag!r} does not name {package.name} {version}: expected '{package.name}-v{version}'")

    install(session, *group("release"))
    last = last_release(session, package, ignoring=tag)
    if last is None:
        session.log(f"{package.name} has no release yet: {version} is the first")
    else:
        compare_with_release(session, package, last)
    draft_notes(session, package, silent=False)


# Helpers ------------------------------------------------------------------------------------------------------------


def group(name: str) -> list[str]:
    """Give the requirements of one of the root's dependency groups."""
    return list(nox.project.dependency_groups(GROUPS, name))


def own_group(package: Package) -> list[str]:
    """Give what a package's tests need beyond the root's group "test"."""
    return list(package.groups.get("test", []))


def closure(names: Iterable[str], extras: Iterable[str] = ()) -> list[Package]:
    """Give the named packages and every sibling that they require, directly or not.

    Args:
        names: Distributions; those that are not in this repository are passed over.
        extras: Extras of the named packages whose requirements count as well.

    Returns:
        Each package once, a requiring one before what it requires.
    """
    found: dict[str, Package] = {}
    for name in names:
        package = PACKAGES.get(name)
        if package is None or name in found:
            continue
        found[name] = package
        for extra in ("", *extras):
            for text in package.dependencies.get(extra, []):
                requirement = Requirement(text)
                for sibling in closure([requirement.name], requirement.extras):
                    found.setdefault(sibling.name, sibling)
    return list(found.values())


def install(session: nox.Session, *requirements: str) -> None:
    """Install requirements under the default row's constraints, packages of this repository editable from the tree.

    Args:
        session: The running session.
        requirements: As pip takes them: "pytest", "hpu-core[lightning]", "hpu-sim".
    """
    others: list[str] = []
    extras: dict[str, set[str]] = {}
    for text in requirements:
        requirement = Requirement(text)
        if requirement.name in PACKAGES:
            for package in closure([requirement.name], requirement.extras):
                extras.setdefault(package.name, set())
            extras[requirement.name] |= requirement.extras
        else:
            others.append(text)
    editable: list[str] = []
    for name, chosen in sorted(extras.items()):
        editable += ["-e", f"./{PACKAGES[name].path}" + (f"[{','.join(sorted(chosen))}]" if chosen else "")]
    session.log("installing; the first time takes a minute or two where torch is needed")
    session.install("-c", DEFAULT_ROW, *editable, *sorted(set(others)))


def install_suite(session: nox.Session, suite: str, *more: str) -> None:
    """Install what a suite of tests may use and nothing else."""
    if suite == TOGETHER:
        install(session, *PACKAGES, *group("test"), *group("demo"), *group("constraints"), *group("reference"), *more)
    else:
        install(session, suite, *group("test"), *own_group(PACKAGES[suite]), *more)


def own_machine(session: nox.Session) -> dict[str, str]:
    """Give the environment in which a session's simulated cards are its own, whatever else is simulated here.

    Without it, a card that another program has taken would be taken for this one, too: so it is on a machine.
    """
    return {"HPU_SIM_RUNTIME_DIR": os.environ.get("HPU_SIM_RUNTIME_DIR", str(Path(session.create_tmp()).resolve()))}


def suite_paths(suite: str) -> list[str]:
    """Give what pytest collects for a suite."""
    return ["tests"] if suite == TOGETHER else ["--doctest-modules", *PACKAGES[suite].tests]


def side_by_side(suite: str) -> list[str]:
    """Give what runs a suite on two processors at once, if it asks for what that takes; others start ranks themselves.

    Tests of a file stay together, because they share what is costly to start.
    """
    names = {Requirement(text).name for text in own_group(PACKAGES[suite])} if suite in PACKAGES else set()
    return ["--numprocesses=2", "--dist=loadfile"] if "pytest-xdist" in names else []


def one_wheel(package: Package) -> Path:
    """Give the wheel that the build session made.

    Raises:
        FileNotFoundError: If there is none, or more than one.
    """
    wheels = list((DIST / package.name).glob("*.whl"))
    if len(wheels) != 1:
        raise FileNotFoundError(f"dist/{package.name} must hold one wheel, found {wheels}: nox -s build makes it")
    return wheels[0]


def wheels_beside(package: Package, extras: Iterable[str] = ()) -> list[str]:
    """Give the wheels of the siblings that a package requires, with some of its extras."""
    return [str(one_wheel(sibling)) for sibling in closure([package.name], extras) if sibling is not package]


def draft_notes(session: nox.Session, package: Package, *, silent: bool) -> None:
    """Render the notes of a package's next release, without writing anything."""
    place = ("--config", "towncrier.toml", "--dir", str(package.path))
    release = ("--name", package.name, "--version", read_version(package))
    session.run("towncrier", "build", "--draft", *place, *release, silent=silent)


def read_version(package: Package) -> str:
    """Read a package's version without importing it."""
    about = ROOT / package.path / "src" / package.modules[0] / "__about__.py"
    (version,) = re.findall(r'^__version__ = "(.+)"$', about.read_text(encoding="utf-8"), re.MULTILINE)
    return str(version)


def git(session: nox.Session, *arguments: str) -> str:
    """Run git and give what it prints."""
    return str(session.run("git", *arguments, external=True, silent=True, log=False)).strip()


def last_release(session: nox.Session, package: Package, *, ignoring: str | None) -> str | None:
    """Give the tag of a package's newest release, or None before the first.

    Args:
        session: The running session.
        package: The package.
        ignoring: The tag that is being released, which is no release yet.
    """
    prefix = f"{package.name}-v"
    tags = [tag for tag in git(session, "tag", "--list", f"{prefix}*").splitlines() if tag != ignoring]
    return max(tags, key=lambda tag: Version(tag.removeprefix(prefix)), default=None)


def compare_with_release(session: nox.Session, package: Package, last: str) -> None:
    """Fail when the source changed since a release and the version did not, or the API broke within a major."""
    released = Version(last.removeprefix(f"{package.name}-v"))
    version = Version(read_version(package))
    source = f"{package.path}/src"
    changed = git(session, "diff", "--name-only", last, "--", source).splitlines()
    if changed and version <= released:
        session.error(
            f"{package.name} changed since {last} ({len(changed)} files in {source}) and its version is still "
            f"{version}: raise `__version__` in {source}/{package.modules[0]}/__about__.py"
        )
    # Below 1.0 a minor may break the API; from then on only a major may.
    compatible = version.release[: 1 if released.major else 2] == released.release[: 1 if released.major else 2]
    if compatible:
        for module in package.modules:
            session.run("griffecli", "check", module, "--search", source, "--against", last)
