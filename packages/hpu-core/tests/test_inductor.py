"""Tests of the error for models that are compiled by inductor."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from hpu_core import SingleHPUStrategy, frameworks
from hpu_core._inductor import reject_inductor

# torch's own, when it imports inductor.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_Base = frameworks.current().pytorch().LightningModule
_COMPILE = frameworks.current().pytorch("utilities.compile")


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    yield
    torch._dynamo.reset()


class Model(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Module with one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = nn.Linear(2, 2)


def test_model_is_rejected_when_it_is_set_up() -> None:
    """Its first step would end with `KeyError: 'hpu'`."""
    trainer = mock.Mock(lightning_module=_COMPILE.from_compiled(torch.compile(Model())))
    with pytest.raises(
        ValueError, match=r'the model is compiled by inductor.*name the backend, `torch.compile\(model, backend="hpu_'
    ):
        SingleHPUStrategy().setup(trainer)


def test_compiled_part_is_named() -> None:
    model = Model()
    model.layer = torch.compile(model.layer)
    with pytest.raises(ValueError, match="`layer` is compiled by inductor"):
        reject_inductor(model)


@pytest.mark.skipif(not hasattr(nn.Module, "compile"), reason="Requires: torch 2.2, which has Module.compile")
def test_part_that_is_compiled_in_place_is_named() -> None:
    model = Model()
    model.layer.compile()
    with pytest.raises(ValueError, match="`layer` is compiled by inductor"):
        reject_inductor(model)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_are_accepted(backend: str) -> None:
    reject_inductor(_COMPILE.from_compiled(torch.compile(Model(), backend=backend)))


def test_compilation_that_is_switched_off_is_accepted() -> None:
    model: Any = torch.compile(nn.Linear(2, 2))
    with torch._dynamo.config.patch(disable=True):
        reject_inductor(model)
