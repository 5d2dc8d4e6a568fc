"""Habits that all commands share: `--json[=FILE]`, `schema_version`, and exit codes.

They need no framework for command lines: hpu-info and hpu-export use argparse, the other commands click.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

SUCCESS: Final = 0
"""Exit code of a command that ran and has found nothing wrong."""
FOUND: Final = 1
"""Exit code of a command that ran and whose answer is no: a problem, a difference, or nothing that it knows."""
COULD_NOT_RUN: Final = 2
"""Exit code of a command that could not run: wrong arguments, a file that cannot be read, or an error of its own."""

STDOUT: Final = "-"
_JSON: Final = "--json"


def mark_json(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which `--json` without a file means standard output.

    Only `--json=FILE` has a file, as the next argument may be an input: `compare --json a.json` must not write to it.
    """
    return [f"{_JSON}={STDOUT}" if argument == _JSON else argument for argument in arguments]


def write_json(report: Mapping[str, Any], to: str, *, indent: int | None = 2) -> None:
    """Write a report to the path `to`, or to standard output if that is "-"; in one line if `indent` is None.

    Raises:
        OSError: The file cannot be written.
    """
    text = f"{json.dumps(report, indent=indent)}\n"
    if to == STDOUT:
        sys.stdout.write(text)
    else:
        Path(to).write_text(text, encoding="utf-8")
