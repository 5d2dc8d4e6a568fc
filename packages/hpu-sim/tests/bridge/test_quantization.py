"""Inference mode."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch import core as htcore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it


@pytest.fixture(autouse=True)
def _restore_flags() -> Iterator[None]:
    yield
    htcore.hpu_inference_reset_env()


@pytest.mark.parametrize(
    ("enable", "disable"),
    [("hpu_set_env", "hpu_reset_env"), ("hpu_inference_set_env", "hpu_inference_reset_env")],
)
def test_inference_mode_can_be_enabled_and_disabled(enable: str, disable: str) -> None:
    assert getattr(htcore, enable)() is None
    inside = hpu.is_inference_mode_enabled()
    getattr(htcore, disable)()

    assert (inside, hpu.is_inference_mode_enabled()) == (True, False)


@pytest.mark.parametrize("name", ["hpu_set_env", "hpu_reset_env"])
def test_the_older_names_print_a_deprecation(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The notice names the replacement, from 1.20 on."""
    getattr(htcore, name)()

    assert capsys.readouterr().out.startswith(f"[TO BE DEPRECATED] {name}, use hpu_inference_")


def test_up_to_1_19_the_older_names_print_nothing(output_on: Callable[..., str]) -> None:
    """There is no other name to use before 1.20."""
    program = """
    import torch
    import habana_frameworks.torch.core as htcore
    model = torch.nn.Linear(2, 2)
    assert htcore.hpu_set_env(model) is model
    assert htcore.hpu_initialize(model, True, None, None) is None
    htcore.hpu_reset_env()
    """

    assert output_on(program, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.19.0") == ""


@pytest.mark.parametrize("initialize", ["hpu_initialize", "hpu_inference_initialize"])
def test_initializing_leaves_the_model_alone(initialize: str) -> None:
    """Weights are not folded into constants, because nothing is compiled."""
    model = torch.nn.Linear(2, 2).to("hpu")
    before = copy.deepcopy(model.state_dict())

    getattr(htcore, initialize)(model, mark_only_scales_as_const=True, mark_scales=False, mark_non_scales=False)

    torch.testing.assert_close(model.state_dict(), before)
