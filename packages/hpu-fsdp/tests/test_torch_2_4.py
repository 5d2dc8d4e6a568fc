"""Tests of the patches for older torch."""

import inspect

import pytest
import torch
from torch.distributed.checkpoint import optimizer
from torch.distributed.fsdp import _optim_utils

from hpu_core import HPUAccelerator
from hpu_fsdp import _torch_2_4

from .conftest import FREES_STORAGES, OnRanks


def _frees_storages() -> bool:
    return _torch_2_4.frees_storages(HPUAccelerator().get_parallel_devices(1)[0])


def test_stock_torch_frees_storages_from_2_3_on(on_ranks: OnRanks) -> None:
    assert on_ranks(_frees_storages, count=1) == [FREES_STORAGES]


def test_optimizer_states_are_gathered_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.2 does, which logs the memory of CUDA and waits for it."""

    def gather() -> None:
        torch.cuda.memory_summary()
        torch.cuda.synchronize()

    monkeypatch.setattr(_optim_utils, "_allgather_orig_param_states", gather)
    synchronize = torch.cuda.synchronize

    with _torch_2_4.gathering_without_cuda():
        gather()

    assert torch.cuda.synchronize is synchronize


def test_torch_has_the_private_names() -> None:
    """The functions that are replaced."""
    assert inspect.isfunction(_optim_utils._allgather_orig_param_states)
    assert list(inspect.signature(optimizer._alloc_tensor).parameters) == ["props", "size", "device_type"]
