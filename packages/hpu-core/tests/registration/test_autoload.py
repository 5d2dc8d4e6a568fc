"""Teaching Lightning without being asked to."""

import importlib.metadata
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from hpu_core import registration
from hpu_core.registration import _hook, _presence

from .programs import output

_HOOKED = "import sys; from hpu_core.registration import _hook; print(_hook._finder in sys.meta_path)"
_LOADED = "print(*(name for name in ('lightning', 'pytorch_lightning', 'lightning_fabric') if name in sys.modules))"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked for, on a machine with a card."""
    installed: list[str] = []
    monkeypatch.setattr(_presence, "is_likely", lambda: True)
    monkeypatch.setattr(_hook, "install", lambda: installed.append("install"))
    monkeypatch.delenv(registration.AUTOLOAD, raising=False)
    return installed


def test_a_machine_with_a_card_is_taught(installed: list[str]) -> None:
    """One hook is placed."""
    registration.autoload()

    assert installed == ["install"]


def test_a_machine_without_one_is_left_alone(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pays for cards that are not there."""
    monkeypatch.setattr(_presence, "is_likely", lambda: False)
    registration.autoload()

    assert installed == []


def test_other_packages_can_ask_whether_it_is_wanted(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They place hooks of their own where this does, and nowhere else."""
    wanted = [registration.is_wanted()]
    monkeypatch.setenv(registration.AUTOLOAD, "0")
    wanted.append(registration.is_wanted())

    assert wanted == [True, False]


def test_the_variable_turns_it_off(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """HPU_CORE_AUTOLOAD=0 is the way out."""
    monkeypatch.setenv(registration.AUTOLOAD, "0")
    registration.autoload()

    assert installed == []


def test_it_never_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An error would make torch itself unusable; it is logged."""

    def fail() -> bool:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(_presence, "is_likely", fail)
    monkeypatch.delenv(registration.AUTOLOAD, raising=False)
    with caplog.at_level(logging.WARNING):
        registration.autoload()

    assert "Lightning will not know Gaudi cards by name" in caplog.text
    assert "no such machine" in caplog.text


def test_torch_is_told_about_it() -> None:
    """The distribution declares the entry point that torch loads."""
    entries = importlib.metadata.entry_points(group="torch.backends", name="hpu_core")

    assert {entry.load() for entry in entries} == {registration.autoload}


def test_torch_places_the_hook_and_loads_no_lightning(tmp_path: Path) -> None:
    """`import torch` alone is enough, and it stays what it was."""
    lines = output(f"import torch\n{_HOOKED}\n{_LOADED}", tmp_path, HPU_SIM_DEVICES="1")

    assert lines == ["True", ""]


def test_hpu_core_places_the_hook_without_torch(tmp_path: Path) -> None:
    """Torch older than 2.5 loads no entry points."""
    lines = output(f"import hpu_core\n{_HOOKED}\nprint('torch' in sys.modules)", tmp_path, HPU_SIM_DEVICES="1")

    assert lines == ["True", "False"]


def test_nothing_is_loaded_but_the_hook() -> None:
    """What every `import torch` pays for, wherever hpu-core is installed, is a few small modules."""
    program = "import sys, hpu_core.registration; print(*sorted(name for name in sys.modules if 'hpu_core' in name))"
    path = str(Path(registration.__file__).parents[2])
    variables = {"PYTHONPATH": path, "HPU_CORE_AUTOLOAD": ""}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=variables, capture_output=True, text=True, check=True
    )

    assert set(done.stdout.split()) <= {
        "hpu_core",
        "hpu_core.bridge",
        "hpu_core.lazy_exports",
        "hpu_core.registration",
        "hpu_core.registration._hook",
        "hpu_core.registration._presence",
        "hpu_core.registration.imports",
    }
