"""Check that no modules of the packages import each other in a cycle.

Imports inside functions count, also those by `importlib.import_module("name")`. Imports for type checkers do not. The
simulated `habana_frameworks` below hpu_sim/bridge is checked like the packages.

Usage: `python scripts/import_cycles.py [SOURCE_FOLDER ...]`; `nox -s lint` calls it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent


def build_graph(folders: list[Path]) -> grimp.ImportGraph:
    """Return the import graph of all packages in some folders."""
    sys.path[:0] = map(str, folders)
    packages = {file.parent.name: file.parent for folder in folders for file in folder.glob("*/__init__.py")}
    graph = grimp.build_graph(*sorted(packages), exclude_type_checking_imports=True, cache_dir=None)
    for module in graph.modules:
        package, *names = module.split(".")
        path = packages[package].joinpath(*names)
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for name in named_imports(file.read_text(encoding="utf-8")) & graph.modules:
            graph.add_import(importer=module, imported=name)
    return graph


def named_imports(source: str) -> set[str]:
    """Return the modules that a source imports by `import_module` with a literal name."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    arguments = [call.args[0] for call in calls if call.args and ast.unparse(call.func).endswith("import_module")]
    return {node.value for node in arguments if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def find_cycles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the strongly connected components of more than one module, each sorted."""
    imported = {module: graph.find_upstream_modules(module) for module in graph.modules}
    cycles = {frozenset({a, *(b for b in imported[a] if a in imported[b])}) for a in imported}
    return sorted(sorted(cycle) for cycle in cycles if len(cycle) > 1)


if __name__ == "__main__":
    all_folders = [*ROOT.glob("packages/*/src"), ROOT / "packages/hpu-sim/src/hpu_sim/bridge"]
    import_graph = build_graph([Path(argument) for argument in sys.argv[1:]] or all_folders)
    found = find_cycles(import_graph)
    for cycle in found:
        print(f"{len(cycle)} modules import each other: {', '.join(cycle)}")
        for importer in cycle:
            direct = import_graph.find_modules_directly_imported_by(importer).intersection(cycle)
            print(f"  {importer} imports {', '.join(sorted(direct))}")
    print(f"{len(import_graph.modules)} modules, {len(found)} import cycles")
    sys.exit(1 if found else 0)
