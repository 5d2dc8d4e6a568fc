"""Boundaries between packages for imports by name, which deptry does not see."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

PACKAGES = Path(__file__).parent.parent / "packages"
# The modules that may name vendor modules, relative to packages/: the one that imports them, and one that it imports,
# which undoes a side effect of that import.
MODULES = {Path("hpu-core/src/hpu_core") / name for name in ("bridge.py", "_rendezvous_env.py")}
# The simulator defines these modules.
SIMULATOR = "hpu-sim"
HABANA_MODULES = {"habana_frameworks"}


def named_modules(source: str, packages: Collection[str], *, top_level: bool = True) -> set[str]:
    """Return the strings of a source that could be names of modules of some packages.

    Args:
        source: The source; "module:name" in it names the module.
        packages: The packages.
        top_level: Whether the name of a package counts.
    """
    strings = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    texts = {text for text in strings if isinstance(text, str) and (top_level or "." in text or ":" in text)}
    names = {text.partition(":")[0] for text in texts}
    return {
        name
        for name in names
        if all(part.isidentifier() for part in name.split(".")) and name.partition(".")[0] in packages
    }


def test_only_the_bridge_names_habana_modules() -> None:
    found = {
        file.relative_to(PACKAGES)
        for file in PACKAGES.glob("*/src/**/*.py")
        if SIMULATOR not in file.parts and named_modules(file.read_text(encoding="utf-8"), HABANA_MODULES)
    }

    assert found == MODULES


def test_only_hpu_compat_names_peers() -> None:
    modules = {folder.name: {path.name for path in folder.glob("src/*")} for folder in PACKAGES.iterdir()}
    peers = set().union(*(names for package, names in modules.items() if package not in {"hpu-core", SIMULATOR}))
    found = {
        package
        for package, own in modules.items()
        for file in (PACKAGES / package).glob("src/**/*.py")
        # "hpu_ddp" is also the name of a strategy.
        if named_modules(file.read_text(encoding="utf-8"), peers - own, top_level=False)
    }

    assert found == {"hpu-compat"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("importlib.import_module('habana_frameworks.torch')", {"habana_frameworks.torch"}),
        ("Classes('habana_frameworks.torch:Class')", {"habana_frameworks.torch"}),
        ("'the bridge, habana_frameworks, is missing'", set()),
    ],
)
def test_named_modules(source: str, expected: set[str]) -> None:
    """The name of a module is found in a string that has nothing else."""
    assert named_modules(source, HABANA_MODULES) == expected
