"""Names of the bridge that the packages use: one table, and one program that looks for each.

The table is `names.json` beside this module. A name is "name(parameters)" for a function with these parameters, "name"
for what exists, and "!name" for what does not, below `habana_frameworks.torch` except for `mediapipe.` and `torch.`.
The other keys of an entry are fields of `Assumption`.
"""

import contextlib
import functools
import importlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from hpu_core import bridge
from hpu_doctor.verify.assumption import SkippedError, Subject
from hpu_doctor.verify.register._tools import parameters_of

SUBJECT = Subject("Names of the bridge")

TABLE: Final[dict[str, dict[str, Any]]] = json.loads(
    resources.files(__package__).joinpath("names.json").read_text(encoding="utf-8")
)


def rows_of(names: Sequence[str]) -> dict[str, str]:
    """Return what is expected of each name: its parameters in parentheses, "there" or "absent"."""
    rows = {}
    for text in names:
        name, parenthesis, parameters = text.partition("(")
        found = f"({parameters}" if parenthesis else "absent" if name.startswith("!") else "there"
        rows[name.removeprefix("!")] = found
    return rows


def _collect(rows: dict[str, str]) -> object:
    """Return what this bridge has of each name, with the parameters where they are expected."""
    seen = {}
    for name, expected in rows.items():
        found = find(name)
        seen[name] = "absent" if found is None else "there"
        if found is not None and expected.startswith("("):
            # A compiled function does not tell its parameters.
            seen[name] = expected
            with contextlib.suppress(SkippedError):
                seen[name] = f"({' '.join(parameters_of(found))})"
    return seen


def find(name: str) -> Any:
    """Return what the bridge has under a name of the table, None for nothing.

    Raises:
        SkippedError: There is no media loader.
    """
    if name.startswith("mediapipe."):
        try:
            bridge.load_media("mediapipe")
        except ImportError as error:
            raise SkippedError(f"the media loader is not installed: {error}") from error
    root = "" if name.startswith("torch.") else "habana_frameworks." + "torch." * (not name.startswith("mediapipe."))
    parts = (root + name).split(".")
    bridge.load()
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found
    return None


for _id, _fields in TABLE.items():
    _rows = rows_of(_fields["names"])
    SUBJECT.add(
        _id,
        f"{len(_rows)} names that the packages use are there, or are not: {', '.join(f'`{name}`' for name in _rows)}.",
        functools.partial(_collect, _rows),
        expected=_rows,
        **{key: value for key, value in _fields.items() if key != "names"},
    )
