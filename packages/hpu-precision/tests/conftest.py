"""Fixture: environment without op lists."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest

# Variables that the developer's shell may have set.
_VARIABLES = (
    "FP32_LIST",
    "HPU_CORE_FRAMEWORK",
    "LOWER_LIST",
    "PT_HPU_AUTOCAST_FP32_OPS_LIST",
    "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST",
    "PT_HPU_LAZY_MODE",
)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Unset variables that select op lists or a framework; restore the environment afterwards."""
    with mock.patch.dict(os.environ):
        for name in _VARIABLES:
            os.environ.pop(name, None)
        yield
