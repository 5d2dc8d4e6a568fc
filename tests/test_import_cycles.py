"""Modules never import each other in a cycle, also not inside functions or for type checkers."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
# Its modules are imported by the vendor's names.
BRIDGE = "packages/hpu-sim/src/hpu_sim/bridge"


def find_modules(root: Path) -> dict[str, Path]:
    """Return the files of all modules: of packages, beside them, and of the simulated bridge."""
    bridge = root / BRIDGE
    modules = {}
    for folder in (*root.glob("packages/*/src"), bridge):
        for file in folder.rglob("*.py"):
            if folder == bridge or bridge not in file.parents:
                name = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
                modules[name] = file
    return modules


def imported_names(source: str) -> Iterator[str]:
    """Yield the names that a source imports, by a statement or by `import_module` with a literal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("import_module"):
            (argument, *_) = node.args
            if isinstance(argument, ast.Constant):
                yield str(argument.value)


def find_cycle(root: Path) -> list[str]:
    """Return the modules of a cycle in a checkout, the first one again at the end; nothing without a cycle."""
    modules = find_modules(root)
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for module, file in modules.items():
        for name in imported_names(file.read_text(encoding="utf-8")):
            # The name of an attribute, such as a class, stands for its module.
            found = {name, name.rpartition(".")[0]} & modules.keys()
            graph[module] |= {max(found, key=len)} - {module} if found else set()
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_packages_have_no_cycle() -> None:
    assert find_cycle(ROOT) == []


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("hpu-core/src/hpu_core/a.py", "hpu-core/src/hpu_core/b.py", ("hpu_core.a", "hpu_core.b")),
        (
            "hpu-sim/src/hpu_sim/a.py",
            "hpu-sim/src/hpu_sim/bridge/habana_frameworks/torch/__init__.py",
            ("hpu_sim.a", "habana_frameworks.torch"),
        ),
    ],
    ids=["package", "bridge"],
)
@pytest.mark.parametrize(
    "statement",
    [
        "import {0}",
        "from {0} import name",
        "def use():\n    import {0}",
        "if TYPE_CHECKING:\n    import {0}",
        "importlib.import_module('{0}')",
    ],
)
def test_cycle_is_found(first: str, second: str, names: tuple[str, str], statement: str, tmp_path: Path) -> None:
    for file, other in ((first, names[1]), (second, names[0])):
        path = tmp_path / "packages" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(statement.format(other), encoding="utf-8")

    assert set(find_cycle(tmp_path)) == set(names)
