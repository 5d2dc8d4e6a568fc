"""Tests of lazy names, of packages that are not installed, and of the real package beside this one."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hpu_compat import _finder
from hpu_core.install_hints import install_command

# A name from each peer.
_NAMES = {
    "hpu_ddp": "HPUParallelStrategy",
    "hpu_deepspeed": "HPUDeepSpeedStrategy",
    "hpu_fsdp": "HPUFSDPStrategy",
    "hpu_precision": "HPUPrecisionPlugin",
    "hpu_profiler": "HPUProfiler",
}

_CONFLICT = (
    r"^lightning-habana 1\.6\.0 must not be installed together with hpu-compat, .*: "
    rf"pip uninstall --yes lightning-habana hpu-compat && {re.escape(install_command('hpu-compat'))}$"
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module with lazy names."""
    module = ModuleType("a_module")
    (tmp_path / "tool.py").touch()
    module.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "a_module", module)
    names = {"loads": "json:loads", "missing": "no_such_package.part:Missing", "broken": "a_broken_package:Broken"}
    get, list_names = _finder.attributes("a_module", names)
    vars(module).update(__getattr__=get, __dir__=list_names)
    return module


def test_dir_lists_lazy_and_other_names(module: ModuleType) -> None:
    assert {"loads", "tool", "__name__"} <= set(dir(module))


def test_missing_package_error_has_the_pip_command(module: ModuleType) -> None:
    """It is a ModuleNotFoundError, as for any failed import."""
    with pytest.raises(
        ModuleNotFoundError,
        match=r"^`a_module\.missing` needs no-such-package, which is not installed: pip install no-such-package$",
    ) as caught:
        module.missing  # noqa: B018 - the attribute access is under test.

    assert caught.value.name == "no_such_package"


def test_import_error_inside_a_package_is_not_changed(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(name: str) -> None:
        raise ModuleNotFoundError("this part needs another thing", name="another_thing")

    monkeypatch.setattr(importlib, "import_module", fail)

    with pytest.raises(ModuleNotFoundError, match=r"^this part needs another thing$"):
        module.broken  # noqa: B018 - the attribute access is under test.


@pytest.mark.parametrize("package", _NAMES)
def test_every_peer_is_optional(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module can be imported without the peer, and its names raise with the pip command."""
    name = _NAMES[package]
    for loaded in [other for other in sys.modules if other.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    # None makes the import fail.
    monkeypatch.setitem(sys.modules, package, None)
    habana = importlib.import_module("lightning_habana.pytorch")
    monkeypatch.delitem(vars(habana), name, raising=False)
    distribution = package.replace("_", "-")

    with pytest.raises(
        ModuleNotFoundError, match=rf"^`.*{name}` needs {distribution}, .*: {re.escape(install_command(distribution))}$"
    ):
        exec(f"from lightning_habana.pytorch import {name}")  # noqa: S102 - the import statement is under test.


@pytest.mark.usefixtures("archived")
def test_import_raises_if_the_real_package_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to clean up."""
    monkeypatch.delitem(sys.modules, "lightning_habana", raising=False)

    with pytest.raises(ImportError, match=_CONFLICT):
        importlib.import_module("lightning_habana")


@pytest.mark.usefixtures("archived")
def test_finder_raises_before_the_real_files_are_found() -> None:
    """If the real package was installed last, its files have overwritten those of this one."""
    with pytest.raises(ImportError, match=_CONFLICT):
        _finder.finder.find_spec("lightning_habana", None)


@pytest.mark.usefixtures("archived")
def test_finder_checks_only_the_top_level_package() -> None:
    _finder.finder.find_spec("lightning_habana.pytorch", None)
