"""Tests of the precision plugins."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

from hpu_core import bridge, frameworks, plugins
from hpu_fsdp import FabricHPUFSDPPrecision, HPUFSDPPrecision

from .conftest import OnRanks

_MisconfigurationException = frameworks.current().fabric("utilities.exceptions").MisconfigurationException

BOTH = pytest.mark.parametrize("kind", [HPUFSDPPrecision, FabricHPUFSDPPrecision])


@pytest.fixture(autouse=True)
def _no_op_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide hpu-precision, if it is installed."""
    monkeypatch.setattr(plugins, "installed", dict)


@BOTH
def test_fp8_needs_the_package_that_has_it(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "installed", dict)
    with pytest.raises(ModuleNotFoundError, match=r"`precision='fp8'` on Gaudi needs hpu-precision, which is not"):
        kind("fp8")


@BOTH
@pytest.mark.parametrize("precision", ["64-true", "bf8"])
def test_unsupported_precision(kind: Any, precision: str) -> None:
    with pytest.raises(ValueError, match=r"`precision` must be"):
        kind(precision)


@BOTH
def test_only_float16_has_a_scaler(kind: Any) -> None:
    scaler = ShardedGradScaler("hpu")

    assert kind("16-mixed", scaler).scaler is scaler
    assert isinstance(kind("16-mixed").scaler, ShardedGradScaler)
    with pytest.raises(ValueError, match="`scaler` must be None with `precision='bf16-mixed'`"):
        kind("bf16-mixed", scaler)


@BOTH
def test_float16_needs_a_generation_that_has_it(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "is_fp16_supported", lambda: False)

    with pytest.raises(NotImplementedError, match="precision='16-mixed' needs Gaudi 2 or newer"):
        kind("16-mixed").convert_module(torch.nn.Linear(2, 2))


class _Casts:
    """Precision plugin of another distribution."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.context: AbstractContextManager[Any] = nullcontext()

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return the context."""
        return self.context


@BOTH
def test_installed_plugin_casts(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Op lists of an installed distribution apply in mixed precision."""
    plugin = plugins.Plugin(precision=plugins.ClassPaths("casts", "casts"))
    monkeypatch.setattr(plugins, "installed", lambda: {"hpu-precision": plugin})
    monkeypatch.setattr(plugins, "load", lambda _: _Casts)

    precision = kind("bf16-mixed")

    assert precision._autocast.precision == "bf16-mixed"
    assert precision.forward_context() is precision._autocast.context
    assert kind("bf16-true")._autocast is None


@BOTH
def test_passed_plugin_casts(kind: Any) -> None:
    casts = _Casts("bf16-mixed")

    assert kind("bf16-mixed", autocast=casts).forward_context() is casts.context


def test_clipping_by_norm_needs_the_whole_module() -> None:
    plugin = HPUFSDPPrecision()
    plugin.root_module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(plugin.root_module.parameters())

    with pytest.raises(_MisconfigurationException, match="wrapped in FullyShardedDataParallel as a whole, got Linear"):
        plugin.clip_grad_by_norm(optimizer, 1.0)


def _autocast(kind: Any) -> tuple[str, torch.dtype]:
    """Return the device type and the dtype of the context of a step."""
    with mock.patch.object(plugins, "installed", dict):
        context = kind("bf16-mixed").forward_context()
    return context.device, context.fast_dtype


@BOTH
def test_step_runs_in_autocast(kind: Any, on_ranks: OnRanks) -> None:
    assert on_ranks(_autocast, kind, count=1) == [("hpu", torch.bfloat16)]
