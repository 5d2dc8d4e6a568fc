"""Decoding of dataclasses from JSON, which :func:`dataclasses.asdict` encodes."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, Final, Literal, TypeVar

#: Version of the JSON of records, reports and plans, incremented when a reader has to change.
SCHEMA_VERSION: Final = 6

_T = TypeVar("_T")


def from_dict(kind: type[_T], data: Any) -> _T:
    """Return the dataclass of which ``data`` is :func:`dataclasses.asdict`, after JSON.

    Raises:
        ValueError: If ``data`` does not match the class, for example because another version wrote it.
    """
    try:
        return typing.cast("_T", _from_dict(kind, data))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a {kind.__name__} of schema version {SCHEMA_VERSION}: {error!r}") from error


_hints = functools.cache(typing.get_type_hints)


def _from_dict(kind: Any, data: Any) -> Any:  # noqa: PLR0911 - one return per kind of type
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(
            **{
                each.name: _from_dict(hints[each.name], data[each.name])
                for each in dataclasses.fields(kind)
                if each.name in data or each.default is each.default_factory is dataclasses.MISSING
            }
        )
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*(_from_dict(hint, item) for hint, item in zip(_hints(kind).values(), data, strict=True)))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _checked(data, data in arguments)
    if origin is dict:
        return {_from_dict(arguments[0], key): _from_dict(arguments[1], value) for key, value in data.items()}
    if origin is list:
        return [_from_dict(arguments[0], item) for item in _checked(data, isinstance(data, list))]
    if origin is tuple:
        _checked(data, isinstance(data, (list, tuple)))
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(_from_dict(item_kind, item) for item_kind, item in zip(kinds, data, strict=True))
    if origin in {types.UnionType, typing.Union}:
        return None if data is None else _from_dict(arguments[0], data)
    # JSON writes a whole float as an int.
    return _checked(data, isinstance(data, (int, float) if kind is float else kind))


def _checked(data: Any, is_valid: bool) -> Any:
    if not is_valid:
        raise TypeError(f"unexpected value {data!r:.80}")
    return data
