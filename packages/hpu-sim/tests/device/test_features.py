"""Features of the releases."""

from __future__ import annotations

import pytest

from hpu_sim.data import releases
from hpu_sim.device import features, runtime


@pytest.mark.parametrize(
    ("release", "names"),
    [
        ("1.10.0", {"hmp", "media_uses_getargspec"}),
        ("1.11.0", {"hmp", "media_uses_getargspec"}),
        ("1.12.1", {"hmp", "hmp_float16", "media_uses_getargspec"}),
        ("1.13.0", {"hmp_float16", "media_uses_getargspec"}),
        ("1.18.0", {"hmp_float16"}),
        ("1.19.2", {"hmp_float16", "from_1_19"}),
        ("1.20.0", {"hmp_float16", "from_1_19", "after_1_19"}),
        (
            "1.24.2",
            {"hmp_float16", "from_1_19", "after_1_19", "mixed_resnet_iterator"},
        ),
    ],
)
def test_a_release_has_its_features(release: str, names: set[str]) -> None:
    found = features.features_of(release)

    assert {name for name in found.__slots__ if getattr(found, name)} == names


def test_hmp_is_in_the_releases_that_are_known_to_have_it() -> None:
    assert [version for version, release in releases._table()[1].items() if release.hmp] == [
        "1.10.0",
        "1.11.0",
        "1.12.0",
        "1.12.1",
    ]


def test_the_process_has_the_features_of_its_release() -> None:
    assert features.features() == features.features_of(runtime.active_config().release.version)
