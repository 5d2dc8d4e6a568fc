"""Preparing inference."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.hpu._toggles import switches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OLD = ("hpu_set_env", "hpu_set_inference_env")
_OLD_ENDS = ("hpu_reset_env", "hpu_teardown_inference_env")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = dict(switches)
    yield
    switches.update(before)


@pytest.mark.parametrize(
    ("start", "end"),
    [*zip(_OLD, _OLD_ENDS, strict=True), ("hpu_inference_set_env", "hpu_inference_reset_env")],
)
def test_inference_mode_goes_on_and_off(start: str, end: str) -> None:
    """With the reshape of matrix products; nothing is returned for no model."""
    names = ("inference_mode", "matmul3d_2d_reshape")

    result = getattr(htcore, start)()
    inside = [switches[name] for name in names]
    getattr(htcore, end)()

    assert result is None
    assert inside == [True, True]
    assert [switches[name] for name in names] == [False, False]


@pytest.mark.parametrize("name", [*_OLD, *_OLD_ENDS])
def test_the_older_names_say_that_they_will_go(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From 1.20 on."""
    getattr(htcore, name)()

    assert capsys.readouterr().out.startswith(f"[TO BE DEPRECATED] {name}, use hpu_inference_")


def test_up_to_1_19_they_say_nothing(output_of: Callable[..., str]) -> None:
    """They are the only names."""
    program = """
    import torch
    import habana_frameworks.torch.core as htcore
    model = torch.nn.Linear(2, 2)
    assert htcore.hpu_set_env(model) is model
    assert htcore.hpu_initialize(model, True, None, None) is None
    htcore.hpu_reset_env()
    """

    assert output_of(program, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.19.0") == ""


def test_batch_norms_are_folded_into_convolutions() -> None:
    """The numbers stay, the layer goes."""
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    model(torch.randn(8, 3, 6, 6))
    plain = copy.deepcopy(model.eval())
    images = torch.randn(2, 3, 6, 6)

    fused = htcore.hpu_inference_set_env(model)

    assert fused is model
    assert [type(layer).__name__ for layer in model] == ["Conv2d", "Identity", "ReLU"]
    torch.testing.assert_close(fused(images), plain(images), rtol=1e-5, atol=1e-5)


def test_a_model_in_training_is_not_folded() -> None:
    """Its statistics still change."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))

    htcore.hpu_inference_set_env(model)

    assert isinstance(model[1], torch.nn.BatchNorm2d)


@pytest.mark.parametrize("initialize", ["hpu_initialize", "hpu_inference_initialize"])
def test_constants_are_marked(initialize: str) -> None:
    """As the arguments say, from 1.20 on."""
    getattr(htcore, initialize)(torch.nn.Linear(2, 2), mark_scales=False)
    first = (switches["mark_scale_const"], switches["mark_non_scale_const"])
    getattr(htcore, initialize)(torch.nn.Linear(2, 2), True)

    assert first == (False, True)
    assert (switches["mark_scale_const"], switches["mark_non_scale_const"]) == (True, False)
