"""Static checks: style, boundaries between packages, metadata and types."""

from __future__ import annotations

import nox

from sessions.environments import install
from sessions.packages import PACKAGES, ROOT, group, test_requirements


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, boundaries between packages, dependencies, metadata and generated files."""
    install(session, *group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    sources = sorted(str(file) for pattern in ("*.cpp", "*.h") for file in ROOT.glob(f"packages/*/src/**/{pattern}"))
    session.run("clang-format", "--dry-run", "--Werror", *sources)
    session.run("validate-pyproject", "pyproject.toml", *(f"{p.path}/pyproject.toml" for p in PACKAGES.values()))
    for package in PACKAGES.values():
        # A package may import what it requires, which of this repository is hpu-core alone, but for hpu-compat.
        session.run("deptry", "--config", f"{package.path}/pyproject.toml", f"{package.path}/src")
        # towncrier fails on a fragment whose name has no type.
        draft = ("towncrier", "build", "--draft", "--config", "pyproject.toml", "--dir", str(package.path))
        session.run(*draft, "--name", package.name, "--version", "next", silent=True)
    session.run("python", "tools/constraints.py", "--check")
    # Workflows. Without the network, which some of its audits would ask about actions. bandit is not needed: ruff
    # checks the same rules, S, and each exception is at its line.
    session.run("zizmor", "--offline", "--persona", "pedantic", ".github")


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy --strict on every package with its tests, and on the code around the packages."""
    install(session, *group("types"), *PACKAGES, *test_requirements(*PACKAGES.values()))
    # One run per package, because two packages may have test modules of the same name.
    for package in PACKAGES.values():
        folders = [package.path / name for name in ("src", "tests", "third_party", "bench")]
        session.run("mypy", *(str(folder) for folder in folders if any(folder.rglob("*.py"))))
    session.run("mypy", "noxfile.py", "conftest.py", "tools", "examples", "tests", "docs/conf.py")
