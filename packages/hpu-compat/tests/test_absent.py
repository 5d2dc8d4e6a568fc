"""Names that nothing is behind."""

import pytest

from hpu_compat import _absent


@pytest.mark.parametrize(
    ("absent", "text"),
    [
        (_absent.HPUFSDPStrategy, r"^HPUFSDPStrategy is not offered .* HPUDeepSpeedStrategy\(stage=3\) shards"),
        (_absent.HPUFSDPPrecision, r"^HPUFSDPPrecision goes with HPUFSDPStrategy, which is not offered"),
        (_absent.HPUDataModule, r"^HPUDataModule reads ImageNet .* needs `habana_dataloader` .* pass an ordinary Data"),
        (_absent.MediaApiDataLoader, r"^MediaApiDataLoader reads ImageNet .* `habana_frameworks\.mediapipe`"),
    ],
)
def test_making_one_says_why_not(absent: type, text: str) -> None:
    """The class can be imported beside others, and the sentence says what to do."""
    with pytest.raises(NotImplementedError, match=text):
        absent("anything", batch_size=8)
