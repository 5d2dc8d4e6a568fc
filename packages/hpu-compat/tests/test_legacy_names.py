"""Tests of Lightning 1.x's names on the installed Lightning."""

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
from hpu_compat import _finder, _legacy_names
from hpu_core import frameworks, registration

_framework = frameworks.current()
_ROOT = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]

# Names that documents use, and the module of the class behind each.
_DOCUMENTED = [
    ("accelerators", "HPUAccelerator", "hpu_core.accelerator"),
    ("plugins", "HPUCheckpointIO", "hpu_core.checkpoints.plugin"),
    ("plugins", "HPUPrecisionPlugin", "hpu_precision.plugin"),
    ("plugins.io", "HPUCheckpointIO", "hpu_core.checkpoints.plugin"),
    ("plugins.precision", "HPUPrecisionPlugin", "hpu_precision.plugin"),
    ("plugins.precision.hpu", "HPUPrecisionPlugin", "hpu_precision.plugin"),
    ("profilers", "HPUProfiler", "hpu_profiler.profiler"),
    ("strategies", "HPUParallelStrategy", "hpu_ddp.strategy"),
    ("strategies", "SingleHPUStrategy", "hpu_core.strategy"),
]


@pytest.fixture
def hooks() -> Iterator[None]:
    """Remove the hooks, which the first import of torch installs, for a test."""
    importlib.import_module(_ROOT)
    installed = [hook for hook in (_legacy_names.hook, _finder.finder) if hook.is_installed]
    hpu_compat.remove()
    yield
    for hook in installed:
        hook.install()


# The changes of `monkeypatch` are undone after this fixture's, and before the hooks are installed again.
@pytest.fixture(autouse=True)
def lightning(hooks: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the unpatched Lightning."""
    del monkeypatch
    yield sys.modules[_ROOT]
    hpu_compat.remove()


def _state() -> dict[str, Any]:
    """Return Lightning's values of the names, by module and name."""
    state = {}
    for module_name, names in _legacy_names.NAMES.items():
        module = sys.modules.get(f"{_ROOT}.{module_name}")
        for name in ("__getattr__", *names):
            state[f"{module_name}.{name}"] = vars(module).get(name) if module is not None else None
    return state


@pytest.mark.parametrize(("module_name", "name", "expected"), _DOCUMENTED)
def test_documented_name_is_the_current_class(module_name: str, name: str, expected: str) -> None:
    """It replaces a stub that raises."""
    hpu_compat.install()
    module = importlib.import_module(f"{_ROOT}.{module_name}")

    assert getattr(module, name).__module__ == expected
    assert vars(module)[name].__module__ == expected


# Lightning 2 has no stub for HPUProfiler.
_REPLACED = [(module, name) for module, names in _legacy_names.NAMES.items() for name in names if module != "profilers"]


@pytest.mark.parametrize(("module_name", "name"), _REPLACED)
def test_lightning_has_a_stub_or_class_to_replace(module_name: str, name: str) -> None:
    """Canary: a stub that moves within Lightning would not be replaced any more."""
    value = vars(sys.modules[f"{_ROOT}.{module_name}"])[name]

    assert _legacy_names._is_stub(value, _ROOT)


def test_remove_restores_lightning() -> None:
    """Names were used in between, and `install` was called twice."""
    before = _state()
    hpu_compat.install()
    hpu_compat.install()
    patched = _state()
    assert sys.modules[f"{_ROOT}.plugins"].HPUCheckpointIO is not before["plugins.HPUCheckpointIO"]
    hpu_compat.remove()

    assert patched != before
    assert _state() == before


def test_unknown_name_raises_attribute_error() -> None:
    hpu_compat.install()

    with pytest.raises(AttributeError, match=rf"^module '{_ROOT}.plugins' has no attribute 'HPUPrecisionPlugim'$"):
        sys.modules[f"{_ROOT}.plugins"].HPUPrecisionPlugim  # noqa: B018 - the attribute access is under test.


def test_modules_own_getattr_is_used_for_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A future Lightning may have one."""
    module = sys.modules[f"{_ROOT}.plugins"]
    monkeypatch.setitem(vars(module), "__getattr__", lambda name: f"Lightning's {name}")
    hpu_compat.install()

    assert module.anything == "Lightning's anything"
    assert module.HPUCheckpointIO.__module__ == "hpu_core.checkpoints.plugin"


def test_classes_other_than_stubs_are_not_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A future Lightning may support Gaudi itself."""
    own = type("HPUAccelerator", (), {"__module__": f"{_ROOT}.accelerators.gaudi"})
    module = sys.modules[f"{_ROOT}.accelerators"]
    monkeypatch.setattr(module, "HPUAccelerator", own, raising=False)
    with caplog.at_level(logging.WARNING):
        hpu_compat.install()

    assert module.HPUAccelerator is own
    assert f"{_ROOT}.accelerators.HPUAccelerator is Lightning's own and is not replaced" in caplog.text


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in frameworks.NAMES), reason="Requires: both Lightnings"
)
def test_other_framework_raises() -> None:
    """Classes of `lightning` and `pytorch_lightning` cannot be combined."""
    other = {"lightning": "pytorch_lightning", "pytorch_lightning": "lightning.pytorch"}[_framework.name]
    importlib.import_module(other)
    hpu_compat.install()
    module = importlib.import_module(f"{other}.plugins")

    with pytest.raises(
        ImportError, match=rf"the Gaudi packages use {_framework.name} in this process .* set HPU_CORE_FRAMEWORK"
    ):
        module.HPUPrecisionPlugin  # noqa: B018 - the attribute access is under test.


@pytest.mark.usefixtures("archived")
def test_conflict_with_the_real_package_raises() -> None:
    """Its files have overwritten those of this one."""
    hpu_compat.install()

    with pytest.raises(ImportError, match="must not be installed together with hpu-compat"):
        sys.modules[f"{_ROOT}.accelerators"].HPUAccelerator  # noqa: B018 - the attribute access is under test.


@pytest.mark.parametrize("wanted", [True, False])
def test_autoload_installs_hooks_only_if_wanted(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With HPU_CORE_AUTOLOAD=0 there is no hook."""
    monkeypatch.setattr(registration, "is_autoload_enabled", lambda: wanted)
    hpu_compat.autoload()

    assert (_legacy_names.hook.is_installed, _finder.finder in sys.meta_path) == (wanted, wanted)


def test_autoload_never_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An exception would break `import torch`; it is logged instead."""

    def fail() -> bool:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(registration, "is_autoload_enabled", fail)
    with caplog.at_level(logging.WARNING):
        hpu_compat.autoload()

    assert "Lightning's 1.x names for Gaudi are unavailable" in caplog.text
