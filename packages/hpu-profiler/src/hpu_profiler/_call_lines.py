"""Source lines of the calls that may wait for the device, for the metadata of a trace with stacks.

A trace has the line of a function's definition. torch's tree of events also has the line of each call.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Final

from hpu_profiler._source_lines import installed_packages
from hpu_profiler.analysis.host_work import user_location
from hpu_profiler.trace.event_collector import SYNC_CALL_RE
from hpu_profiler.trace.model import CALL_LINES_KEY

if TYPE_CHECKING:
    from pathlib import Path

_TRAINER_RE: Final = re.compile(r"(lightning/pytorch|pytorch_lightning)/trainer/trainer\.py$")
_RUNS: Final = frozenset({"fit", "validate", "test", "predict"})
# Helpers that many callers share, such as Lightning's apply_func.
_HELPER_RE: Final = re.compile(
    r"(^|/)(torch|lightning_utilities|lightning_fabric|lightning/fabric)/"
    r"|(^|/)(lightning|pytorch_lightning)/(.*/)?utilities/|(^|/)(contextlib|functools)\.py$"
)
_LIGHTNING_RE: Final = re.compile(r"(^|/)(lightning|lightning_fabric|pytorch_lightning)/")
_PROGRESS_BAR_RE: Final = re.compile(r"/callbacks/progress/")
#: Largest number of lines in a trace.
_MAX_LINES: Final = 20_000


def add_call_lines(path: Path, profile: Any) -> None:
    """Append the line of each call to a trace file; torch without a tree of events leaves it as it is."""
    tree = getattr(getattr(profile, "kineto_results", None), "experimental_event_tree", None)
    if tree is None:
        return
    lines = _call_lines(tree(), frozenset(installed_packages()))
    if not lines:
        return
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        while file.read(1) != b"}":
            file.seek(-2, os.SEEK_CUR)
        file.seek(-1, os.SEEK_CUR)
        file.write(f',\n"{CALL_LINES_KEY}": {json.dumps(lines)}}}\n'.encode())
        file.truncate()


def _call_lines(roots: list[Any], libraries: frozenset[str]) -> list[tuple[int, str]]:
    """Return the start in nanoseconds and the line of each call: the user's innermost one, and who calls below it.

    The function of a metric or another library in the step says more than the step's line, and helpers of torch and
    Lightning say nothing.
    """
    lines: list[tuple[int, str]] = []
    # An event with the innermost line of the user's that leads to it, and the innermost telling call below that.
    pending: list[tuple[Any, str, str]] = [(event, "", "") for event in roots]
    while pending and len(lines) < _MAX_LINES:
        event, line, via = pending.pop()
        caller = getattr(event.extra_fields, "caller", None)
        if caller is not None:
            if caller.function_name in _RUNS and _TRAINER_RE.search(caller.file_name):
                # The program's line that runs the Trainer leads to everything and explains nothing.
                line = via = ""
            elif _PROGRESS_BAR_RE.search(caller.file_name):
                line = _location(caller)
            elif user_line := user_location(_frame_name(caller), libraries):
                line, via = user_line, ""
            elif not _HELPER_RE.search(caller.file_name) and not (line and _LIGHTNING_RE.search(caller.file_name)):
                via = _location(caller)
            if SYNC_CALL_RE.match(event.name):
                lines.append((event.start_time_ns, " in ".join(filter(None, [via, line])) or _location(caller)))
        pending += [(child, line, via) for child in event.children]
    return sorted(lines)


def _frame_name(caller: Any) -> str:
    """Return the name that torch gives a frame in a trace."""
    return f"{caller.file_name}({caller.line_number}): {caller.function_name}"


def _location(caller: Any) -> str:
    return f"{caller.file_name}:{caller.line_number} {caller.function_name}"
