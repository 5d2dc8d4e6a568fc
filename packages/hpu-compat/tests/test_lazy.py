"""Names that are fetched, and packages that are not there."""

import importlib
import sys
from types import ModuleType

import pytest

from hpu_compat import _behind, _lazy

# A name of each package that may be missing.
_NAMES = {
    "hpu_ddp": "HPUParallelStrategy",
    "hpu_deepspeed": "HPUDeepSpeedStrategy",
    "hpu_precision": "HPUPrecisionPlugin",
    "hpu_profiler": "HPUProfiler",
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that has names."""
    module = ModuleType("a_module")
    monkeypatch.setitem(sys.modules, "a_module", module)
    targets = {"loads": "json:loads", "gone": "no_such_package.part:Gone", "broken": "a_broken_package:Broken"}
    fetch, listed = _lazy.fetching(
        "a_module", targets, [*targets, "not there"], submodules=["tool"], found_out={"answer": lambda: 42}
    )
    vars(module).update(__getattr__=fetch, __dir__=listed)
    return module


def test_a_name_is_fetched_once(module: ModuleType) -> None:
    """After the first use it is an ordinary attribute."""
    import json

    assert module.loads is json.loads
    assert vars(module)["loads"] is json.loads


def test_a_name_can_be_found_out(module: ModuleType) -> None:
    """Then, too, it is kept."""
    assert (module.answer, vars(module)["answer"]) == (42, 42)


def test_names_are_listed(module: ModuleType) -> None:
    """With what the module has beside them."""
    assert {"loads", "answer", "tool", "__name__"} <= set(dir(module))


def test_a_name_without_a_target_is_the_modules_own_affair(module: ModuleType) -> None:
    """It may define it itself."""
    with pytest.raises(AttributeError, match=r"^module 'a_module' has no attribute 'not there'$"):
        getattr(module, "not there")


def test_a_missing_package_is_one_sentence(module: ModuleType) -> None:
    """With the pip command, as an error that programs expect of a missing import."""
    with pytest.raises(
        ModuleNotFoundError,
        match=r"^`a_module\.gone` needs no-such-package, which is not installed: pip install no-such-package$",
    ) as caught:
        module.gone  # noqa: B018 - asking for the name is what is tested.

    assert caught.value.name == "no_such_package"


def test_what_a_package_itself_misses_is_its_own_to_say(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error passes as it is."""

    def fail(name: str) -> None:
        raise ModuleNotFoundError("this part needs another thing", name="another_thing")

    monkeypatch.setattr(importlib, "import_module", fail)

    with pytest.raises(ModuleNotFoundError, match=r"^this part needs another thing$"):
        module.broken  # noqa: B018 - asking for the name is what is tested.


@pytest.mark.parametrize("package", _NAMES)
def test_every_peer_may_be_missing(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name of it says what to install, and the module can be imported."""
    name = _NAMES[package]
    for loaded in [other for other in sys.modules if other.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    # Python's own sign for a module that must not be found.
    monkeypatch.setitem(sys.modules, package, None)
    habana = importlib.import_module("lightning_habana.pytorch")
    monkeypatch.delitem(vars(habana), name, raising=False)
    distribution = package.replace("_", "-")

    with pytest.raises(
        ModuleNotFoundError, match=rf"^`.*{name}` needs {distribution}, .*: pip install {distribution}$"
    ):
        exec(f"from lightning_habana.pytorch import {name}")  # noqa: S102 - as a program would.


def test_targets_are_public() -> None:
    """Behind each name stands what its package exports, so that it may move inside of it."""
    packages = {target.partition(":")[0] for half in (_behind.TRAINER, _behind.FABRIC) for target in half.values()}

    assert packages <= {*_NAMES, "hpu_core", "hpu_core.fabric", "hpu_compat._absent"}
