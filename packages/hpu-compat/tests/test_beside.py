"""The real lightning-habana in the same environment."""

import importlib
import sys

import pytest

from hpu_compat import _beside, _hook

_REFUSAL = (
    r"^lightning-habana 1\.6\.0 is installed beside hpu-compat, .*: "
    r"pip uninstall --yes lightning-habana hpu-compat && pip install 'hpu-compat\[all\]'$"
)


def test_alone_nothing_is_refused() -> None:
    """This environment has the one package."""
    _beside.check()


@pytest.mark.usefixtures("archived")
def test_beside_the_real_one_the_import_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip has written one over the other; a sentence says how to clean up."""
    monkeypatch.delitem(sys.modules, "lightning_habana", raising=False)

    with pytest.raises(ImportError, match=_REFUSAL):
        importlib.import_module("lightning_habana")


@pytest.mark.usefixtures("archived")
def test_the_real_ones_files_are_refused_as_well() -> None:
    """Where it was installed last, its files answer, and nothing of this package would be asked."""
    with pytest.raises(ImportError, match=_REFUSAL):
        _hook.refusal.find_spec("lightning_habana", None)


@pytest.mark.usefixtures("archived")
def test_other_modules_are_not_refused() -> None:
    """They cost a comparison."""
    _hook.refusal.find_spec("lightning_habana.pytorch", None)
