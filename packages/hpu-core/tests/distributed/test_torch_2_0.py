"""Replacements for what torch 2.0 lacks, which run on every torch."""

import pytest

from hpu_core.distributed import _torch_2_0


@pytest.mark.parametrize("backend", ["gloo", "nccl", "unregistered"])
def test_backends_for_other_devices_do_not_support_hpu(backend: str) -> None:
    assert not _torch_2_0.supports_hpu(backend)
