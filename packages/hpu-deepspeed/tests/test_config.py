"""DeepSpeed's configuration as it is completed, with no card."""

import importlib.metadata
import sys
from typing import Any

import pytest

from hpu_deepspeed import _config

_OURS = {"stage3_model_persistence_threshold": sys.maxsize}


def _completed(config: dict[str, Any], pydantic: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what becomes of "zero_optimization" beside another pydantic."""
    monkeypatch.setattr(importlib.metadata, "version", {"pydantic": pydantic}.__getitem__)
    _config.complete(config)
    return config.get("zero_optimization")


@pytest.mark.parametrize("pydantic", ["2.0.3", "2.1.1", "2.2.1"])
def test_a_pydantic_that_refuses_deepspeeds_default_is_given_it(pydantic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plain integer, which it takes."""
    assert _completed({"zero_optimization": {"stage": 3}}, pydantic, monkeypatch) == {"stage": 3, **_OURS}


def test_a_configuration_without_zero_has_the_default_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed reads all options of ZeRO, whatever the stage."""
    assert _completed({}, "2.1.1", monkeypatch) == _OURS


@pytest.mark.parametrize("name", ["model_persistence_threshold", "stage3_model_persistence_threshold"])
def test_the_users_value_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By either name that DeepSpeed has for it, of which it takes one alone."""
    assert _completed({"zero_optimization": {name: 5}}, "2.1.1", monkeypatch) == {name: 5}


@pytest.mark.parametrize("pydantic", ["1.10.24", "2.3.0", "2.14.3"])
def test_other_pydantics_need_no_help(pydantic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration stays as it is."""
    assert _completed({"zero_optimization": {"stage": 3}}, pydantic, monkeypatch) == {"stage": 3}
