"""Operator lists of `torch.autocast("hpu")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

from hpu_sim.device import autocast
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def test_an_operator_of_the_promote_list_casts_to_the_widest_dtype() -> None:
    wide, narrow = torch.ones(2, device="hpu"), torch.ones(2, device="hpu", dtype=torch.bfloat16)

    with torch.autocast("hpu"):
        assert torch.cat([wide, narrow]).dtype == torch.float32
        assert torch.cat([narrow, narrow]).dtype == torch.bfloat16


def test_an_operator_of_no_list_keeps_its_dtype() -> None:
    with torch.autocast("hpu"):
        assert torch.ones(2, device="hpu").relu().dtype == torch.float32


def test_autocast_computes_the_same_as_explicit_casts() -> None:
    x, weight = torch.randn(3, 4, device="hpu"), torch.randn(2, 4, device="hpu")

    with torch.autocast("hpu"):
        result = functional.linear(x, weight)

    assert torch.equal(result, functional.linear(x.bfloat16(), weight.bfloat16()))


@pytest.mark.parametrize("name", ["autocast_lower", "autocast_fp32", "autocast_promote"])
def test_the_lists_hold_operator_names(name: str) -> None:
    """The files have no empty lines and no comments."""
    operators = autocast.default_list(name)

    assert operators
    assert all(operator.isidentifier() for operator in operators)


class _Recorder:
    """Fake extension that records policies and knows every operator but `unknown`."""

    def __init__(self) -> None:
        self.policies: dict[str, str] = {}

    def register_autocast(self, policies: dict[str, str]) -> set[str]:
        self.policies = policies
        return policies.keys() & {"unknown"}


@pytest.fixture
def policies() -> Callable[..., dict[str, str]]:
    """Return a function that registers the lists of an environment, and returns the policy of each operator."""

    def register(**environment: str) -> dict[str, str]:
        recorder: Any = _Recorder()
        autocast.register(recorder, environment)
        return dict(recorder.policies)

    return register


@pytest.mark.parametrize("variable", ["PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "LOWER_LIST"])
def test_a_file_replaces_the_lower_list(variable: str, policies: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    """Both names of the variable work, and the lower list takes precedence over the others."""
    path = tmp_path / "ops.txt"
    path.write_text("tanh\n\n exp \n", encoding="utf-8")

    registered = policies(**{variable: str(path)})

    assert {name for name, policy in registered.items() if policy == "lower"} == {"exp", "tanh"}


@pytest.mark.parametrize("variable", ["PT_HPU_AUTOCAST_FP32_OPS_LIST", "FP32_LIST"])
def test_a_file_replaces_the_float32_list(
    variable: str, policies: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """An operator that is no longer in it may be promoted."""
    path = tmp_path / "ops.txt"
    path.write_text("tanh\n", encoding="utf-8")

    registered = policies(**{variable: str(path)})

    assert (registered["tanh"], registered["pow"]) == ("fp32", "promote")


def test_an_unreadable_file_means_the_default_list(
    policies: Callable[..., dict[str, str]], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A warning names the file."""
    registered = policies(LOWER_LIST=str(tmp_path / "missing"))

    assert registered == policies()
    assert f"LOWER_LIST must be a readable file, got {tmp_path / 'missing'} (" in caplog.text


def test_an_operator_that_torch_lacks_is_ignored(policies: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    """Lists are written for several releases of torch."""
    path = tmp_path / "ops.txt"
    path.write_text("unknown\ntanh\n", encoding="utf-8")

    assert policies(LOWER_LIST=str(path))["tanh"] == "lower"


def test_an_unknown_operator_is_not_registered() -> None:
    assert native().register_autocast({"no_such_operator": "lower"}) == {"no_such_operator"}


def test_the_lists_are_read_on_activation(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """They apply to the whole process."""
    path = tmp_path / "ops.txt"
    path.write_text("tanh\n", encoding="utf-8")
    program = """
    import hpu_sim
    hpu_sim.activate()
    import torch
    x = torch.ones(2, 2, device="hpu")
    with torch.autocast("hpu"):
        print(x.tanh().dtype, (x @ x).dtype)
    """

    result = run_python(program, PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST=str(path))

    assert result.stdout == "torch.bfloat16 torch.float32\n"


def test_in_place_operators_write_to_the_original_tensor() -> None:
    """An operator that writes an argument writes to the tensor itself, not to a cast copy of it."""
    target = torch.zeros(2, device="hpu", dtype=torch.bfloat16)

    with torch.autocast("hpu"):
        target.add_(torch.ones(2, device="hpu"))

    assert target.dtype == torch.bfloat16
    assert target.tolist() == [1.0, 1.0]
