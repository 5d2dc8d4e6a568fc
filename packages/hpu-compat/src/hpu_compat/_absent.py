"""Classes of the archived package that nothing here stands for: they can be imported, and say why when they are made.

They are no plans but names. A program that never makes one may still import it, beside what it uses or for an
`isinstance`; if the name were missing, that program would end at its import. Whoever makes one is told what to use.
"""

from typing import Any, ClassVar


class _Absent:
    """An archived name that can be imported but is not offered: making one raises, with the reason in `_reason`."""

    _reason: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} {self._reason}")


class HPUFSDPStrategy(_Absent):
    """Fully sharded data parallelism on Gaudi cards.

    Raises:
        NotImplementedError: Always.
    """

    _reason = (
        "is not offered by any of these packages yet: HPUDeepSpeedStrategy(stage=3) shards parameters, gradients and "
        "optimizer states, too"
    )


class HPUFSDPPrecision(_Absent):
    """The precision of HPUFSDPStrategy.

    Raises:
        NotImplementedError: Always.
    """

    _reason = "goes with HPUFSDPStrategy, which is not offered by any of these packages yet"


class _Media(_Absent):
    _reason = (
        "reads ImageNet through Intel's media loader, which needs `habana_dataloader` (first-generation Gaudi) or "
        "`habana_frameworks.mediapipe` (Gaudi 2 and newer) of Intel's PyTorch image, and torchvision; none of these "
        "packages drives it yet: pass an ordinary DataLoader, such as DataLoader(ImageFolder(...), num_workers=8, "
        "drop_last=True)"
    )


class HPUDataModule(_Media):
    """ImageNet through Intel's media loader.

    Raises:
        NotImplementedError: Always.
    """


class MediaApiDataLoader(_Media):
    """Intel's media loader from Gaudi 2 on.

    Raises:
        NotImplementedError: Always.
    """
