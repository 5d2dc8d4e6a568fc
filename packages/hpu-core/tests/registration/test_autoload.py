"""Tests of implicit registration, on `import torch`, on `import hpu_core` and by constructors."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import hpu_core
from hpu_core import HPUAccelerator, registration
from hpu_core.registration import _import_hook

from .programs import output_of_new_python

_HOOKED = "import sys; from hpu_core.registration import _import_hook; print(_import_hook._hook in sys.meta_path)"
_LOADED = "print(*(name for name in ('lightning', 'pytorch_lightning', 'lightning_fabric') if name in sys.modules))"


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record of installed hooks."""
    installs: list[str] = []
    monkeypatch.setattr(_import_hook, "install", lambda: installs.append("install"))
    monkeypatch.delenv(registration.AUTOLOAD, raising=False)
    return installs


@pytest.mark.parametrize("implicit", [registration.autoload, registration.register_if_enabled, HPUAccelerator])
def test_variable_disables_implicit_registration(
    implicit: type, installs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    implicit()
    enabled = list(installs)
    monkeypatch.setenv(registration.AUTOLOAD, "0")
    implicit()

    assert enabled == installs == ["install"]
    hpu_core.register()
    assert installs == ["install"] * 2


def test_autoload_logs_and_does_not_raise(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An exception would make `import torch` fail."""

    def fail() -> bool:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(_import_hook, "install", fail)
    monkeypatch.delenv(registration.AUTOLOAD, raising=False)
    with caplog.at_level(logging.WARNING):
        registration.autoload()

    assert "cannot register HPU with Lightning" in caplog.text
    assert "no such machine" in caplog.text


def test_importing_torch_installs_hook(tmp_path: Path) -> None:
    """It imports no Lightning, and needs no card."""
    lines = output_of_new_python(f"import torch\n{_HOOKED}\n{_LOADED}", tmp_path)

    assert lines == ["True", ""]


def test_importing_hpu_core_installs_hook(tmp_path: Path) -> None:
    """Torch before 2.5 loads no entry points."""
    program = f"import hpu_core\n{_HOOKED}\nprint('torch' in sys.modules)"
    lines = output_of_new_python(program, tmp_path)

    assert lines == ["True", "False"]


def test_importing_hpu_core_imports_few_modules() -> None:
    """Every `import torch` pays for these."""
    program = "import sys, hpu_core.registration; print(*sorted(name for name in sys.modules if 'hpu_core' in name))"
    path = str(Path(registration.__file__).parents[2])
    variables = {"PYTHONPATH": path, "HPU_CORE_AUTOLOAD": ""}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=variables, capture_output=True, text=True, check=True
    )

    assert set(done.stdout.split()) <= {
        "hpu_core",
        "hpu_core.import_hooks",
        "hpu_core.lazy_exports",
        "hpu_core.registration",
        "hpu_core.registration._import_hook",
        "hpu_core._lightning_2_0",
    }
