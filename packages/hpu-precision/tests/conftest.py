"""A process without a bridge, whatever is installed."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest

# What the developer's shell may have set.
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
    """The environment without op lists; put back as it was afterwards."""
    with mock.patch.dict(os.environ):
        for name in _VARIABLES:
            os.environ.pop(name, None)
        yield
