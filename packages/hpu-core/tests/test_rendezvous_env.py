"""Tests of MASTER_ADDR and MASTER_PORT, which the bridge's import sets to a fixed endpoint."""

import importlib
import os
from pathlib import Path
from unittest import mock

import pytest

from hpu_core import _rendezvous_env, bridge

_DEFAULTS = {"MASTER_ADDR": "localhost", "MASTER_PORT": "12345"}
_OF_PARENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **_DEFAULTS}


@pytest.mark.usefixtures("fake_bridge")
@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        ({}, (None, None)),
        ({"NODE_RANK": "1"}, (None, None)),
        ({"MASTER_PORT": "12345"}, (None, "12345")),
        ({"MASTER_ADDR": "localhost"}, ("localhost", None)),
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29411"}, ("10.0.0.1", "29411")),
        (_DEFAULTS, ("localhost", "12345")),
        # Two jobs that one process starts would share the port.
        (_OF_PARENT, (None, None)),
        ({**_OF_PARENT, "MASTER_ADDR": "10.0.0.1"}, ("10.0.0.1", "12345")),
        ({**_OF_PARENT, "LOCAL_RANK": "1"}, ("localhost", "12345")),
    ],
    ids=[
        "nothing",
        "no endpoint of several machines",
        "default port",
        "default address",
        "other endpoint",
        "both defaults",
        "of a parent's bridge",
        "of a parent, with another address",
        "of a launcher",
    ],
)
def test_what_the_bridge_sets_is_cleared_and_what_is_inherited_stays(
    inherited: dict[str, str], expected: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.environ.update(inherited)
    monkeypatch.setattr(_rendezvous_env, "inherited_names", lambda: frozenset(inherited))
    importlib.import_module("habana_frameworks.torch")
    _rendezvous_env.clear()

    assert (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")) == expected


@pytest.mark.usefixtures("no_bridge")
def test_without_a_bridge_the_values_of_the_program_stay() -> None:
    os.environ.update(_DEFAULTS)
    _rendezvous_env.clear()

    assert os.environ["MASTER_PORT"] == "12345"


@pytest.mark.usefixtures("environment")
def test_a_variable_of_the_program_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ["HPU_OF_THE_PROGRAM"] = "1"
    names = _rendezvous_env.inherited_names()
    assert "PATH" in names
    assert "HPU_OF_THE_PROGRAM" not in names

    # A system without /proc.
    monkeypatch.setattr(Path, "read_bytes", mock.Mock(side_effect=FileNotFoundError))
    assert _rendezvous_env.inherited_names() == os.environ.keys()


@pytest.mark.usefixtures("fake_bridge")
def test_load_sets_nothing() -> None:
    bridge.load()

    assert not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ)


@pytest.mark.usefixtures("fake_bridge")
def test_load_keeps_values_of_the_user() -> None:
    os.environ["MASTER_PORT"] = "29500"

    bridge.load()

    assert os.environ["MASTER_PORT"] == "29500"
