"""Differences between the bridges of the releases.

Two states of the bridge's sources are known: 1.19.0, and one of later 2025. Which release brought which difference
between them is unknown, so the simulator uses the earlier state up to 1.19 and the later one for all newer releases.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hpu_sim.data import releases
from hpu_sim.device import runtime


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a release that the modules of the bridge check.

    Attributes:
        hmp: ``hpex.hmp``, mixed precision before autocast.
        hmp_float16: ``hmp.convert`` has ``fp16_file_path`` and ``low_precision_type``, and the long list of float32
            operators. It is the last known form, so the last release with HMP, 1.12, has it.
        from_1_19: The distribution declares an entry point of ``torch.backends``.
        after_1_19: The later state of the sources: a version module, ``hpu_inference_set_env``, torch's own
            ``ProfilerActivity``, ``init_process_group`` and ``new_group``, HPU graphs that can be imported in eager
            mode, philox contexts of random numbers.
        media_uses_getargspec: Media pipes inspect a program's own classes with a function that Python 3.11 removed.
            It is known of 1.17.
        mixed_resnet_iterator: ``CPUHPUResnetPytorchIterator``, which the vendor's models import from 1.22 on.
    """

    hmp: bool
    hmp_float16: bool
    from_1_19: bool
    after_1_19: bool
    media_uses_getargspec: bool
    mixed_resnet_iterator: bool


@functools.cache
def features_of(version: str) -> Features:
    """Return the features of a release, such as ``"1.18.0"``.

    >>> features_of("1.12.1").hmp, features_of("1.24.1").hmp
    (True, False)
    """
    line = tuple(int(part) for part in version.split("."))[:2]
    return Features(
        hmp=releases.find(version).hmp,
        hmp_float16=line >= (1, 12),
        from_1_19=line >= (1, 19),
        after_1_19=line > (1, 19),
        media_uses_getargspec=line <= (1, 17),
        mixed_resnet_iterator=line >= (1, 22),
    )


def features() -> Features:
    """Return the features of the release that this process simulates.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    return features_of(runtime.active_config().release.version)
