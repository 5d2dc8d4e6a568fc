"""Boundaries between packages that the import contracts cannot see, because the imports go by name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

PACKAGES = Path(__file__).parent.parent / "packages"
# The one module that may name the vendor's modules, relative to packages/.
SEAM = Path("hpu-core/src/hpu_core/bridge.py")
# The simulator provides those names itself.
PROVIDER = "hpu-sim"
VENDOR = {"habana_frameworks"}


def named_modules(source: str, packages: Collection[str], *, bare: bool = True) -> set[str]:
    """Give every string in a source that could be the name of a module of some packages, docstrings aside.

    Args:
        source: The source. In it, "module:name" names the module, too.
        packages: The packages.
        bare: Whether the name of a package by itself counts.
    """
    strings = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    texts = {text for text in strings if isinstance(text, str) and (bare or "." in text or ":" in text)}
    names = {text.partition(":")[0] for text in texts}
    return {
        name
        for name in names
        if all(part.isidentifier() for part in name.split(".")) and name.partition(".")[0] in packages
    }


def test_only_the_seam_names_the_vendors_modules() -> None:
    """No module but hpu_core.bridge imports the vendor's modules by name."""
    offenders = {
        file.relative_to(PACKAGES)
        for file in PACKAGES.glob("*/src/**/*.py")
        if PROVIDER not in file.parts and named_modules(file.read_text(encoding="utf-8"), VENDOR)
    }

    assert offenders == {SEAM}


def test_only_hpu_compat_names_peers() -> None:
    """No other package imports one of the packages around hpu-core by name."""
    modules = {folder.name: {path.name for path in folder.glob("src/*")} for folder in PACKAGES.iterdir()}
    peers = set().union(*(names for package, names in modules.items() if package not in {"hpu-core", PROVIDER}))
    offenders = {
        package
        for package, own in modules.items()
        for file in (PACKAGES / package).glob("src/**/*.py")
        # By itself, "hpu_ddp" is a strategy's name, too.
        if named_modules(file.read_text(encoding="utf-8"), peers - own, bare=False)
    }

    assert offenders == {"hpu-compat"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("importlib.import_module('habana_frameworks.torch')", {"habana_frameworks.torch"}),
        ("Classes('habana_frameworks.torch:Class')", {"habana_frameworks.torch"}),
        ("'the bridge, habana_frameworks, is missing'", set()),
    ],
)
def test_the_check_can_fail(source: str, expected: set[str]) -> None:
    """A name of a module is found, a sentence about it is not."""
    assert named_modules(source, VENDOR) == expected
