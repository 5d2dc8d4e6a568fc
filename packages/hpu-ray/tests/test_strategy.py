"""Tests of the strategies outside of Ray's workers."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("ray.train")

from hpu_core import hccl, plugins
from hpu_ray.strategy import WorkerProcessGroupManager, find_strategy, prepare_trainer


def test_strategies_are_found_by_their_names() -> None:
    assert find_strategy("hpu_ddp").__module__ == "hpu_ddp.strategy"

    with pytest.raises(ValueError, match="got 'other'"):
        find_strategy("other")


def test_missing_distribution_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "installed", dict[str, EntryPoint])

    with pytest.raises(ModuleNotFoundError, match="hpu-fsdp"):
        find_strategy("hpu_fsdp")


def test_training_outside_of_a_worker_is_refused() -> None:
    with pytest.raises(RuntimeError, match="TorchTrainer"):
        WorkerProcessGroupManager("hccl", None).rendezvous(None)


def test_other_strategies_are_refused() -> None:
    """They would start ranks of their own, or wait for ranks at another port."""
    trainer: Any = SimpleNamespace(strategy=object())

    with pytest.raises(TypeError, match=r"RayHPUDDPStrategy.*got object"):
        prepare_trainer(trainer)


def test_rank_and_module_are_set_once_by_the_backend() -> None:
    """Before Ray creates the process group, which the strategy takes over."""
    from hpu_ray.ddp import RayHPUDDPStrategy

    with mock.patch.object(hccl, "initialize_hccl") as initialize:
        RayHPUDDPStrategy.setup_hccl_env(mock.Mock())

    initialize.assert_not_called()
