"""Check of the tables of docs/bridge.md against the simulated machine of this process.

test_table.py runs ``python table.py docs/bridge.md``, which prints every row that is false.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import sys
import warnings
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

_CLAUSE = re.compile(r"lazy|eager|(?P<kind>to|from|only|torch below|torch from) (?P<line>\d\.\d+)")
_MISSING = object()


@dataclass(frozen=True)
class Row:
    """Row of a table: the call with its module, its condition, and the simulator's verdict."""

    call: str
    when: str
    here: str

    @property
    def name(self) -> str:
        """Full name of the call."""
        return self.call.partition("(")[0]

    @property
    def parameters(self) -> str | None:
        """Parameters of the call; None if the row has none."""
        return self.call.partition("(")[2][:-1] if "(" in self.call else None

    @property
    def is_absent(self) -> bool:
        """Whether the simulator lacks the call."""
        return self.here.startswith("absent: ")

    def applies(self, release: str, *, lazy: bool) -> bool:
        """Return whether a release has the call in a mode."""
        return not self.when or any(_holds(clause, _line(release), lazy=lazy) for clause in self.when.split(" or "))


def _holds(clause: str, line: tuple[int, ...], *, lazy: bool) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise ValueError(f"a condition must be about releases and modes, got {clause!r}")
    if match["kind"] is None:
        return lazy is (clause == "lazy")
    bound = _line(match["line"])
    torch = _line(importlib.metadata.version("torch"))
    return {
        "to": line <= bound,
        "from": line >= bound,
        "only": line == bound,
        "torch below": torch < bound,
        "torch from": torch >= bound,
    }[match["kind"]]


def _line(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def read(text: str) -> list[Row]:
    """Return the rows of all tables, in order."""
    rows = []
    module = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"## `(.+)`", line):
            module = heading[1]
        elif line.startswith("## "):
            module = ""
        elif module and (row := re.fullmatch(r"\| `(.+)` \|(?: (.+))? \| (.+) \|", line)):
            rows.append(Row(f"{module}.{row[1]}", row[2] or "", row[3]))
    return rows


def resolve(name: str) -> Any:
    """Return the object of a name, or `_MISSING`."""
    found: Any = None
    path = ""
    for part in name.split("."):
        path = f"{path}.{part}".lstrip(".")
        # Attributes first: `version` is a function of a module with the same name.
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(path)
        except ImportError:
            return _MISSING
    return found


def fault(row: Row, release: str, *, lazy: bool) -> str | None:
    """Return what is false about a row, or None."""
    found = resolve(row.name)
    if row.is_absent:
        return None if found is _MISSING else "exists and should be absent"
    difference = "is missing" if found is _MISSING else _difference(found, row)
    if row.applies(release, lazy=lazy):
        return difference
    return None if difference else "exists on a release or in a mode that lacks it"


def _difference(found: Any, row: Row) -> str | None:
    if row.parameters is None:
        return None
    expected, actual = _expected(row.parameters, found), _actual(found)
    return None if expected == actual else f"has the parameters {actual}, not {expected}"


def _actual(found: Any) -> list[tuple[str, str]]:
    parameters = list(inspect.signature(found).parameters.values())
    if parameters and parameters[0].name == "self":
        del parameters[0]
    described = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            described.append(("**", ""))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            described.append(("*", ""))
        elif parameter.default is parameter.empty:
            described.append((parameter.name, ""))
        else:
            described.append((parameter.name, repr(parameter.default)))
    return described


def _expected(parameters: str, found: Any) -> list[tuple[str, str]]:
    function = ast.parse(f"def call({parameters}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    import torch

    module = inspect.getmodule(found)
    known = {
        "torch": torch,
        "timedelta": timedelta,
        "Format": getattr(module, "Format", None),
        "Mode": getattr(module, "RotaryPosEmbeddingMode", None),
    }

    def value(node: ast.expr | None) -> str:
        return "" if node is None else repr(eval(ast.unparse(node), known))  # noqa: S307 - own document

    positional = [*given.posonlyargs, *given.args]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    described = [(a.arg, value(d)) for a, d in zip(positional, [*padding, *given.defaults], strict=True)]
    described += [("*", "")] if given.vararg else []
    described += [(a.arg, value(d)) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    described += [("**", "")] if given.kwarg else []
    return described


def main() -> None:
    """Print every fault, one per line."""
    import torch  # noqa: F401 - activates the simulator

    # Deprecated modules warn on import.
    warnings.simplefilter("ignore", DeprecationWarning)
    from hpu_sim.device.runtime import active_config

    machine = active_config()
    for row in read(Path(sys.argv[1]).read_text(encoding="utf-8")):
        what = fault(row, machine.release.version, lazy=machine.lazy)
        if what is not None:
            print(f"{row.name} {what}")  # noqa: T201 - the test reads the output


if __name__ == "__main__":
    main()
