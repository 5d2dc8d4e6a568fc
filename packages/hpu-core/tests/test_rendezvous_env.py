"""Tests of MASTER_ADDR and MASTER_PORT, which the bridge's import sets to a fixed endpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpu_core import _rendezvous_env, bridge

_FAKE_BRIDGE = Path(__file__).parent / "fake_bridge"

_SET_DEFAULTS = "os.environ['MASTER_ADDR'] = 'localhost'; os.environ['MASTER_PORT'] = '12345'"

_PROGRAM = """
import os
{before}
{imports}
{after}
from hpu_core import _rendezvous_env
_rendezvous_env.clear()
print(os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
"""

# Stand-ins for torch, which loads the backends hpu_core and habana_frameworks in either order.
_BRIDGE_FIRST = "import habana_frameworks.torch\nimport hpu_core.registration\nhpu_core.registration.autoload()\n"
_BRIDGE_LAST = "import hpu_core.registration\nhpu_core.registration.autoload()\nimport habana_frameworks.torch\n"


def _remaining(folder: Path, imports: str, before: str = "", after: str = "", **variables: str) -> str:
    """Return MASTER_ADDR and MASTER_PORT of a program that clears the bridge's defaults."""
    for name, source in (("bridge_first", _BRIDGE_FIRST), ("bridge_last", _BRIDGE_LAST)):
        package = folder / name / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
    path = [*(str(folder / name) for name in ("bridge_first", "bridge_last") if name == imports), str(_FAKE_BRIDGE)]
    program = _PROGRAM.format(before=before, imports="import torch" if "bridge_" in imports else imports, after=after)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("HPU_", "MASTER_", "TORCHINDUCTOR"))
    }
    environment.update(PYTHONPATH=os.pathsep.join([*path, *sys.path]), **variables)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_IMPORTS = pytest.mark.parametrize(
    "imports",
    ["bridge_first", "bridge_last", "import hpu_core, habana_frameworks.torch"],
    ids=["torch imports the bridge first", "torch imports the bridge last", "the program imports the bridge"],
)


@_IMPORTS
def test_defaults_of_the_bridge_are_cleared(imports: str, tmp_path: Path) -> None:
    assert _remaining(tmp_path, imports) == "None None"


@_IMPORTS
@pytest.mark.parametrize("when", ["before", "after"])
def test_same_values_of_the_user_stay(imports: str, when: str, tmp_path: Path) -> None:
    """The program assigns the bridge's defaults itself, before or after the import."""
    assert _remaining(tmp_path, imports, **{when: _SET_DEFAULTS}) == "localhost 12345"


@_IMPORTS
def test_port_of_the_user_stays_without_address(imports: str, tmp_path: Path) -> None:
    assert _remaining(tmp_path, imports, after="os.environ['MASTER_PORT'] = '12345'") == "None 12345"


@_IMPORTS
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MASTER_PORT": "12345"}, "None 12345"),
        ({"MASTER_ADDR": "localhost"}, "localhost None"),
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29411"}, "10.0.0.1 29411"),
    ],
    ids=["default port", "default address", "other endpoint"],
)
def test_inherited_values_stay(imports: str, variables: dict[str, str], expected: str, tmp_path: Path) -> None:
    assert _remaining(tmp_path, imports, **variables) == expected


@_IMPORTS
@pytest.mark.parametrize(("launcher", "expected"), [({}, "None None"), ({"LOCAL_RANK": "1"}, "localhost 12345")])
def test_inherited_defaults_of_a_parents_bridge_are_cleared(
    imports: str, launcher: dict[str, str], expected: str, tmp_path: Path
) -> None:
    """Two jobs that one process starts would share the port."""
    inherited = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "12345"}

    assert _remaining(tmp_path, imports, **inherited, **launcher) == expected


def test_untracked_import_is_not_cleared(tmp_path: Path) -> None:
    """If hpu_core is imported after the bridge and torch, nothing shows who set the variables."""
    assert _remaining(tmp_path, "import habana_frameworks.torch") == "localhost 12345"


def test_inherited_marker_proves_nothing(tmp_path: Path) -> None:
    """The order of variables is inconclusive if the process inherited the variable that the bridge sets first."""
    remaining = _remaining(tmp_path, "bridge_first", before=_SET_DEFAULTS, TORCHINDUCTOR_COMPILE_THREADS="1")

    assert remaining == "localhost 12345"


@pytest.mark.usefixtures("environment")
def test_system_without_proc_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path) -> bytes:
        raise FileNotFoundError(path)

    os.environ.pop("TORCHINDUCTOR_COMPILE_THREADS", None)
    os.environ.update(TORCHINDUCTOR_COMPILE_THREADS="1", MASTER_ADDR="localhost", MASTER_PORT="12345")
    monkeypatch.setattr(Path, "read_bytes", unreadable)
    _rendezvous_env.record_past_import()
    _rendezvous_env.clear()

    assert os.environ["MASTER_PORT"] == "12345"


@pytest.mark.usefixtures("fake_bridge")
def test_load_sets_nothing() -> None:
    bridge.load()

    assert not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ)


@pytest.mark.usefixtures("fake_bridge")
def test_load_keeps_values_of_the_user() -> None:
    os.environ["MASTER_PORT"] = "29500"

    bridge.load()

    assert os.environ["MASTER_PORT"] == "29500"
