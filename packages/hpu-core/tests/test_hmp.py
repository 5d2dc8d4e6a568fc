"""Tests of the import of HMP."""

from pathlib import Path

import pytest

from hpu_core.hmp import load_hmp


@pytest.mark.usefixtures("fake_bridge")
def test_bridge_without_hmp() -> None:
    assert load_hmp() is None


@pytest.mark.usefixtures("no_bridge")
def test_hmp_without_its_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hpex = tmp_path / "habana_frameworks" / "torch" / "hpex"
    hpex.mkdir(parents=True)
    (hpex / "hmp.py").write_text("import warnings; warnings.warn('HMP will be removed', DeprecationWarning)")
    (hpex.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    hmp = load_hmp()

    assert hmp is not None
    assert hmp.__name__ == "habana_frameworks.torch.hpex.hmp"
