"""Tests of classes that are not supported."""

import pytest

from hpu_compat import _unsupported


@pytest.mark.parametrize(
    ("unsupported", "message"),
    [
        (
            _unsupported.HPUDataModule,
            r"^HPUDataModule is not supported: .* needs torchvision and `habana_dataloader` .* use a Data",
        ),
        (_unsupported.MediaApiDataLoader, r"^MediaApiDataLoader is not supported: .* `habana_frameworks\.mediapipe`"),
    ],
)
def test_instantiating_raises(unsupported: type, message: str) -> None:
    """The error says what to use instead."""
    with pytest.raises(NotImplementedError, match=message):
        unsupported("anything", batch_size=8)
