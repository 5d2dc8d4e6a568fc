"""Tests of the patches for older DeepSpeed."""

import importlib.metadata
import sys
from typing import Any

import pytest

from hpu_deepspeed import _deepspeed_0_16


class _IntSubclass(int):
    """Stand-in for the class of DeepSpeed's default."""


def _options() -> Any:
    """Return a pydantic model with an option whose default is like DeepSpeed's."""
    pydantic: Any = pytest.importorskip("pydantic", minversion="2.0")

    class Options(pydantic.BaseModel):  # type: ignore[misc] # Imported at run time.
        model_config = pydantic.ConfigDict(protected_namespaces=(), validate_default=True)
        model_persistence_threshold: int = _IntSubclass(sys.maxsize)

    return Options


@pytest.mark.parametrize(
    ("pydantic", "expected"), [("2.0.3", int), ("2.2.1", int), ("2.3.0", _IntSubclass), ("1.10.24", _IntSubclass)]
)
def test_default_is_converted_for_pydantic_2_0_to_2_2(
    pydantic: str, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other releases accept a subclass of int, so the default stays as it is."""
    options = _options()
    monkeypatch.setattr(importlib.metadata, "version", {"pydantic": pydantic}.__getitem__)

    _deepspeed_0_16.fix_pydantic_default(options)

    assert type(options.model_fields["model_persistence_threshold"].default) is expected


def test_converted_default_has_the_same_value(monkeypatch: pytest.MonkeyPatch) -> None:
    options = _options()
    monkeypatch.setattr(importlib.metadata, "version", {"pydantic": "2.1.1"}.__getitem__)

    _deepspeed_0_16.fix_pydantic_default(options)

    assert options().model_persistence_threshold == sys.maxsize
