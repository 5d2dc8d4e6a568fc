"""Tests with the real lightning-habana in the same environment."""

import importlib
import re
import sys

import pytest

from hpu_compat import _conflict
from hpu_core.install_hints import install_command

_CONFLICT = (
    r"^lightning-habana 1\.6\.0 must not be installed together with hpu-compat, .*: "
    rf"pip uninstall --yes lightning-habana hpu-compat && {re.escape(install_command('hpu-compat'))}$"
)


def test_no_conflict_in_this_environment() -> None:
    _conflict.check()


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
        _conflict.finder.find_spec("lightning_habana", None)


@pytest.mark.usefixtures("archived")
def test_finder_checks_only_the_top_level_package() -> None:
    _conflict.finder.find_spec("lightning_habana.pytorch", None)
