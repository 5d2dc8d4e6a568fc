"""The real lightning-habana in the same environment."""

import importlib
import importlib.util
import sys

import pytest

from hpu_compat import _beside

_REFUSAL = (
    "^lightning-habana 1.6.0 is installed beside hpu-compat, .*: "
    "pip uninstall --yes lightning-habana hpu-compat && pip install hpu-compat$"
)


def test_alone_nothing_is_refused() -> None:
    """This environment has the one package."""
    _beside.check()


@pytest.mark.usefixtures("archived")
def test_beside_the_real_one_the_import_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip has written one over the other; a sentence says how to clean up."""
    monkeypatch.delitem(sys.modules, "lightning_habana")

    with pytest.raises(ImportError, match=_REFUSAL):
        importlib.import_module("lightning_habana")


@pytest.mark.usefixtures("archived")
def test_the_real_ones_files_are_refused_as_well() -> None:
    """Where it was installed last, its files answer, and nothing of this package would be asked."""
    installed = _beside._finder in sys.meta_path
    _beside.install()
    try:
        with pytest.raises(ImportError, match=_REFUSAL):
            _beside._finder.find_spec("lightning_habana", None)
        _beside._finder.find_spec("lightning_habana.pytorch", None)
    finally:
        _beside.remove()
        if installed:
            _beside.install()


def test_installing_twice_checks_once() -> None:
    """Both torch and `lightning_habana` ask for it."""
    _beside.install()
    _beside.install()
    count = sys.meta_path.count(_beside._finder)
    _beside.remove()
    _beside.remove()

    assert (count, _beside._finder in sys.meta_path) == (1, False)
