"""Replacements for what torch 2.0 lacks, which run on every torch."""

import pytest
from torch._C._distributed_c10d import HashStore

from hpu_core.distributed import _torch_2_0


@pytest.mark.parametrize("backend", ["gloo", "nccl", "unregistered"])
def test_backends_for_other_devices_do_not_support_hpu(backend: str) -> None:
    assert not _torch_2_0.supports_hpu(backend)


@pytest.mark.parametrize("is_torch_2_0", [True, _torch_2_0.IS_TORCH_2_0])
def test_keys_are_looked_for_without_waiting_or_writing(is_torch_2_0: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch_2_0, "IS_TORCH_2_0", is_torch_2_0)
    store = HashStore()
    store.set("a", "")

    found = [_torch_2_0.has_all(store, keys) for keys in ([], ["a"], ["b"], ["a", "b"], ["b"])]

    assert found == [True, True, False, False, False]
