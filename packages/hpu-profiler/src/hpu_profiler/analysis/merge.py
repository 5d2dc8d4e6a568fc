"""Merging of results: one for a whole trace from those of its parts.

Totals are exact. Medians, and rates of events that may overlap, become means over the parts.
"""

from __future__ import annotations

import itertools
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _typeshed import DataclassInstance

_ResultT = TypeVar("_ResultT", bound="DataclassInstance")

#: Metadata of the fields of results that are no totals.
FIRST: Final = {"merge": "first"}
MAX: Final = {"merge": "max"}
MEAN: Final = {"merge": "mean"}

#: Key and order of the rows of results.
_ROWS: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "host_work": (lambda row: row.owner, lambda row: (-row.idle, -row.time)),
    "collectives": (lambda row: row.name, lambda row: -row.time),
    "collective_sizes": (lambda row: (row.name, row.size), lambda row: (-row.size, row.name)),
    "memcpy": (lambda row: row.name, lambda row: -row.time),
    "sites": (lambda row: (row.name, row.location, row.action), lambda row: (-row.time, -row.calls)),
    "recipes": (lambda row: row.recipe, lambda row: -row.busy_time),
    "moving_kernels": (lambda row: row.name, lambda row: -row.time),
    "engines": (lambda row: row.engine, lambda row: -row.time),
    "top_kernels": (lambda row: row[0], lambda row: -row[2]),
}


def merge_results(results: Sequence[_ResultT]) -> _ResultT:
    """Return the result for a whole from those of its parts, in order; the fields' metadata say how each is merged."""
    merged: dict[str, Any] = {}
    for field in fields(results[0]):
        values = [getattr(result, field.name) for result in results]
        rule = field.metadata.get("merge")
        if field.name in _ROWS:
            merged[field.name] = _merge_rows(*_ROWS[field.name], itertools.chain.from_iterable(values))
        elif rule == "mean" and None not in values:
            weights = [_weight(result) for result in results]
            total = sum(weights) or 1
            merged[field.name] = sum(value * weight for value, weight in zip(values, weights, strict=True)) / total
        elif rule == "max":
            merged[field.name] = max(values)
        elif rule is None:
            merged[field.name] = _merge_values([value for value in values if value is not None])
    return replace(results[0], **merged)


def _weight(result: object) -> float:
    return next((getattr(result, name) for name in ("calls", "launches") if hasattr(result, name)), 1)


def _merge_rows(key: Callable[[Any], Any], order: Callable[[Any], Any], rows: itertools.chain[Any]) -> tuple[Any, ...]:
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return tuple(sorted(map(_merge_row, groups.values()), key=order))


def _merge_row(rows: list[Any]) -> Any:
    if is_dataclass(rows[0]):
        return merge_results(rows)
    return rows[0][0], *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))


def _merge_values(values: Sequence[Any]) -> Any:
    first = values[0] if values else None
    if isinstance(first, bool):
        return any(values)
    if isinstance(first, int | float):
        return sum(values)
    if isinstance(first, dict):
        keys = dict.fromkeys(itertools.chain.from_iterable(values))
        return {key: _merge_values([value[key] for value in values if key in value]) for key in keys}
    if is_dataclass(first):
        return merge_results(values)
    return next(filter(None, values), first)
