"""Entry point of `torch.backends`."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import pytest
import torch
from packaging.version import Version

from hpu_sim.process import autoload

if TYPE_CHECKING:
    from collections.abc import Callable


def test_torch_finds_the_entry_point() -> None:
    """The installed distribution declares the entry point."""
    found = [entry for entry in metadata.entry_points(group="torch.backends") if entry.name == "hpu_sim"]

    assert [entry.value for entry in found] == ["hpu_sim.process.autoload:autoload"]
    assert found[0].load() is autoload.autoload


def test_an_inactive_autoload_imports_four_small_modules(output_of_new_python: Callable[..., str]) -> None:
    """Every `import torch` pays for them. An empty variable counts as unset."""
    program = """
    import __future__, importlib, os, sys, typing  # as torch does
    before = set(sys.modules)
    from hpu_sim.process.autoload import autoload
    autoload()
    os.environ["HPU_SIM_DEVICES"] = ""
    autoload()
    print(*sorted(set(sys.modules) - before))
    """

    loaded = output_of_new_python(program)

    assert loaded == "hpu_sim hpu_sim.__about__ hpu_sim.process hpu_sim.process.autoload"


@pytest.mark.parametrize("imports", ["torch", "habana_frameworks.torch"])
def test_only_an_import_of_the_bridge_sets_the_rendezvous(imports: str, output_of: Callable[..., str]) -> None:
    """From 2.5 on, torch imports it; before, all jobs of a machine would share the endpoint that it sets."""
    loads_backends = Version(torch.__version__) >= Version("2.5.dev0")

    endpoint = output_of(
        f"import {imports}, os; print(os.environ.get('MASTER_ADDR'), os.environ.get('MASTER_PORT'))",
        HPU_SIM_DEVICES="1",
    )

    assert endpoint == ("localhost 12345" if loads_backends or imports != "torch" else "None None")


def test_the_variable_selects_the_release(output_on: Callable[..., str]) -> None:
    """A release that is lazy by default starts in lazy mode."""
    program = """
    import torch
    import habana_frameworks.torch.core as htcore
    print(htcore.is_lazy())
    """

    assert output_on(program, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.18.0") == "True"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HPU_SIM_DEVICES", "two"),
        ("HPU_SIM_GENERATION", "GAUDI9"),
        ("HPU_SIM_MEMORY", "plenty"),
        ("HPU_SIM_RELEASE", "0.1"),
    ],
)
def test_an_invalid_variable_fails_the_import(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that asked for hpu tensors must not run without them; the error names the value."""
    monkeypatch.setenv(variable, value)

    with pytest.raises(ValueError, match=rf"^{variable} must be .* got {value!r}$"):
        autoload.autoload()
