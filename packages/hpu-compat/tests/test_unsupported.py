"""Tests of a class that is not supported."""

import pytest

from hpu_compat import _unsupported


def test_instantiating_raises() -> None:
    """The error says what to use instead."""
    with pytest.raises(NotImplementedError, match=r"^MediaApiDataLoader is not supported: .* use HPUDataModule"):
        _unsupported.MediaApiDataLoader("anything", batch_size=8)
