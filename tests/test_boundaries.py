"""Boundaries between packages that the import contracts cannot see, because the imports go by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parent.parent / "packages"
# The one module that may name the vendor's modules, relative to packages/.
SEAM = Path("hpu-core/src/hpu_core/bridge.py")
# The simulator provides those names itself.
PROVIDER = "hpu-sim"


def named_modules(source: str) -> set[str]:
    """Give every string in a source that could be the name of a module of the vendor's, docstrings aside."""
    strings = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return {
        text
        for text in strings
        if isinstance(text, str) and all(part.isidentifier() for part in text.split(".")) and is_vendor(text)
    }


def is_vendor(name: str) -> bool:
    """Tell whether a dotted name is a module of the vendor's bridge."""
    return name.partition(".")[0] == "habana_frameworks"


def test_only_the_seam_names_the_vendors_modules() -> None:
    """No module but hpu_core.bridge imports the vendor's modules by name."""
    offenders = {
        file.relative_to(PACKAGES)
        for file in PACKAGES.glob("*/src/**/*.py")
        if PROVIDER not in file.parts and named_modules(file.read_text(encoding="utf-8"))
    }

    assert offenders == {SEAM}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("importlib.import_module('habana_frameworks.torch')", {"habana_frameworks.torch"}),
        ("'the bridge, habana_frameworks, is missing'", set()),
    ],
)
def test_the_check_can_fail(source: str, expected: set[str]) -> None:
    """A name of a module is found, a sentence about it is not."""
    assert named_modules(source) == expected
