"""Lightning's names of version 1.x on the installed Lightning."""

import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import hpu_compat
from hpu_compat import _hook, _names
from hpu_core import frameworks, registration

_framework = frameworks.current()
_ROOT = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]

# The names that documents use, and which class is behind each.
_DOCUMENTED = [
    ("accelerators", "HPUAccelerator", "hpu_core.accelerator"),
    ("plugins", "HPUCheckpointIO", "hpu_core.checkpoint"),
    ("plugins", "HPUPrecisionPlugin", "hpu_precision.plugin"),
    ("plugins.io", "HPUCheckpointIO", "hpu_core.checkpoint"),
    ("plugins.precision", "HPUPrecisionPlugin", "hpu_precision.plugin"),
    ("plugins.precision.hpu", "HPUPrecisionPlugin", "hpu_precision.plugin"),
    ("profilers", "HPUProfiler", "hpu_profiler.profiler"),
    ("strategies", "HPUParallelStrategy", "hpu_ddp.strategy"),
    ("strategies", "SingleHPUStrategy", "hpu_core.strategy"),
]


@pytest.fixture(autouse=True)
def lightning() -> Iterator[ModuleType]:
    """Lightning as it is by itself, and left like that; what was installed before is again afterwards."""
    module = importlib.import_module(_ROOT)
    installed = _hook.lightning.is_installed
    hpu_compat.remove()
    yield module
    hpu_compat.remove()
    if installed:
        hpu_compat.install()


def _state() -> dict[str, Any]:
    """Return what Lightning has by the names, by place."""
    state = {}
    for place, names in _names.NAMES.items():
        module = sys.modules.get(f"{_ROOT}.{place}")
        for name in ("__getattr__", *names):
            state[f"{place}.{name}"] = vars(module).get(name) if module is not None else None
    return state


@pytest.mark.parametrize(("place", "name", "behind"), _DOCUMENTED)
def test_a_documented_name_is_a_class_that_works(place: str, name: str, behind: str) -> None:
    """In place of a stub that raises an error."""
    hpu_compat.install()
    module = importlib.import_module(f"{_ROOT}.{place}")

    assert getattr(module, name).__module__ == behind
    assert vars(module)[name].__module__ == behind


def test_every_place_is_one_of_lightnings() -> None:
    """A module that moved would be missed without a word."""
    assert all(f"{_ROOT}.{place}" in sys.modules for place in _names.NAMES)


def test_removal_leaves_lightning_as_it_was() -> None:
    """Also after names were used, and after being installed twice."""
    before = _state()
    hpu_compat.install()
    hpu_compat.install()
    taught = _state()
    assert sys.modules[f"{_ROOT}.plugins"].HPUCheckpointIO is not before["plugins.HPUCheckpointIO"]
    hpu_compat.remove()

    assert taught != before
    assert _state() == before


def test_acting_again_changes_nothing() -> None:
    """Lightning's package and its last module are both waited for."""
    before = _state()
    hpu_compat.install()
    _names.offer(_ROOT)
    _names.offer(_ROOT)
    hpu_compat.remove()

    assert _state() == before


def test_other_names_are_as_ever() -> None:
    """A typo fails as in any module."""
    hpu_compat.install()

    with pytest.raises(AttributeError, match=rf"^module '{_ROOT}.plugins' has no attribute 'HPUPrecisionPlugim'$"):
        sys.modules[f"{_ROOT}.plugins"].HPUPrecisionPlugim  # noqa: B018 - asking for the name is what is tested.


def test_a_modules_own_getattr_is_asked_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some day Lightning may have one."""
    module = sys.modules[f"{_ROOT}.plugins"]
    monkeypatch.setitem(vars(module), "__getattr__", lambda name: f"Lightning's {name}")
    hpu_compat.install()

    assert module.anything == "Lightning's anything"
    assert module.HPUCheckpointIO.__module__ == "hpu_core.checkpoint"


def test_a_class_that_is_no_stub_stays(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Some day Lightning may have support of its own again."""
    own = type("HPUAccelerator", (), {"__module__": f"{_ROOT}.accelerators.gaudi"})
    module = sys.modules[f"{_ROOT}.accelerators"]
    monkeypatch.setattr(module, "HPUAccelerator", own, raising=False)
    with caplog.at_level(logging.WARNING):
        hpu_compat.install()

    assert module.HPUAccelerator is own
    assert f"{_ROOT}.accelerators.HPUAccelerator is Lightning's own and stays" in caplog.text


@pytest.mark.parametrize("version", ["1.9.5", "unknown", None])
def test_an_older_lightning_keeps_its_classes(
    version: str | None, lightning: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the names mean them."""
    before = _state()
    monkeypatch.setattr(lightning, "__version__", version)
    hpu_compat.install()

    assert _state() == before


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in frameworks.NAMES), reason="Requires: both Lightnings"
)
def test_the_other_lightning_is_told_that_it_is_not_the_one() -> None:
    """Its classes do not mix with those of the one that has the card."""
    other = {"lightning": "pytorch_lightning", "pytorch_lightning": "lightning.pytorch"}[_framework.name]
    importlib.import_module(other)
    hpu_compat.install()
    module = importlib.import_module(f"{other}.plugins")

    with pytest.raises(
        ImportError, match=rf"^the Gaudi packages use {_framework.name} in this process, .* set HPU_COR"
    ):
        module.HPUPrecisionPlugin  # noqa: B018 - asking for the name is what is tested.


@pytest.mark.usefixtures("archived")
def test_the_real_package_is_refused_here_as_well() -> None:
    """One that has written its files over these."""
    hpu_compat.install()

    with pytest.raises(ImportError, match="is installed beside hpu-compat"):
        sys.modules[f"{_ROOT}.accelerators"].HPUAccelerator  # noqa: B018 - asking for the name is what is tested.


@pytest.mark.parametrize("wanted", [True, False])
def test_it_is_done_where_hpu_core_does_it(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pays for cards that are not there, and HPU_CORE_AUTOLOAD=0 turns it off."""
    monkeypatch.setattr(registration, "should_autoload", lambda: wanted)
    hpu_compat.autoload()

    assert (_hook.lightning.is_installed, _hook.refusal in sys.meta_path) == (wanted, wanted)


def test_autoload_never_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An error would make torch itself unusable; it is logged."""

    def fail() -> bool:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(registration, "should_autoload", fail)
    with caplog.at_level(logging.WARNING):
        hpu_compat.autoload()

    assert "Lightning will not have its 1.x names for Gaudi" in caplog.text


def test_torch_is_told_about_it() -> None:
    """The distribution declares the entry point that torch loads."""
    entries = importlib.metadata.entry_points(group="torch.backends", name="hpu_compat")

    assert {entry.load() for entry in entries} == {hpu_compat.autoload}
