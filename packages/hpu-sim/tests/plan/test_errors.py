"""Errors of programs, as a user sees them."""

from __future__ import annotations

import json

from hpu_sim.plan import errors


def test_a_traceback_has_the_lines_of_the_program() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        shown = errors.describe(error).splitlines()

    assert shown[0] == "Traceback (most recent call last):"
    assert __file__ in shown[1]
    assert sum(line.startswith("  File ") for line in shown) == 1
    assert shown[-1].startswith("json.decoder.JSONDecodeError: ")
