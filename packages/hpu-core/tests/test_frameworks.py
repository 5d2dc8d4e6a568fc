"""Which Lightning is used, and how the ones that cannot be used are refused."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from hpu_core import frameworks

Install = Callable[[str, str], None]

pytestmark = pytest.mark.usefixtures("environment")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A machine with no Lightning, and the function that installs one: `install("lightning", "2.5.1")`."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in frameworks.NAMES:
        monkeypatch.setitem(sys.modules, name, None)

    def install(name: str, version: str) -> None:
        monkeypatch.delitem(sys.modules, name)
        package = tmp_path / name / "__init__.py"
        package.parent.mkdir()
        package.write_text("raise AssertionError('deciding must not import this')\n")
        metadata = tmp_path / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")

    return install


@pytest.fixture
def both(install: Install) -> None:
    """A machine with both, as the distribution `lightning` installs them."""
    install("lightning", "2.5.1")
    install("pytorch_lightning", "2.4.0")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The function that makes a process have imported a package."""

    def loaded(name: str) -> None:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    return loaded


@pytest.mark.parametrize("name", frameworks.NAMES)
def test_the_only_one_installed_is_used(install: Install, name: str) -> None:
    """With one installed there is no question."""
    install(name, "2.3.0")

    framework = frameworks.decide()

    assert (framework.name, str(framework.version)) == (name, "2.3.0")


@pytest.mark.usefixtures("both")
def test_lightning_is_preferred() -> None:
    """With both installed and none imported, it is `lightning`."""
    assert frameworks.decide().name == "lightning"


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("name", frameworks.NAMES)
def test_the_one_in_use_is_used(loaded: Callable[[str], None], name: str) -> None:
    """With both installed, it is the one that the program has imported."""
    loaded(name)

    assert frameworks.decide().name == name


@pytest.mark.usefixtures("both")
def test_lightning_is_preferred_where_both_are_in_use(loaded: Callable[[str], None]) -> None:
    """Having imported both says nothing."""
    loaded("lightning")
    loaded("pytorch_lightning")

    assert frameworks.decide().name == "lightning"


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("in_use", frameworks.NAMES)
def test_the_override_wins(loaded: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, in_use: str) -> None:
    """HPU_CORE_FRAMEWORK decides, whatever has been imported."""
    loaded(in_use)
    monkeypatch.setenv("HPU_CORE_FRAMEWORK", "pytorch_lightning")

    assert frameworks.decide().name == "pytorch_lightning"


@pytest.mark.usefixtures("both")
def test_an_unknown_override_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped override is not passed over."""
    monkeypatch.setenv("HPU_CORE_FRAMEWORK", "fabric")

    with pytest.raises(ValueError, match="HPU_CORE_FRAMEWORK must be 'lightning' or 'pytorch_lightning', got 'fabric'"):
        frameworks.decide()


def test_an_override_that_is_not_installed_is_refused(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """An override does not fall back to the other framework."""
    install("lightning", "2.5.1")
    monkeypatch.setenv("HPU_CORE_FRAMEWORK", "pytorch_lightning")

    with pytest.raises(ModuleNotFoundError, match="'pytorch_lightning', which is not installed: pip install"):
        frameworks.decide()


@pytest.mark.usefixtures("install")
def test_absence_comes_with_the_command() -> None:
    """Without any Lightning, the error holds what to type."""
    with pytest.raises(ModuleNotFoundError, match=r'neither .* is installed: pip install "hpu-core\[lightning\]"'):
        frameworks.decide()


@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
@pytest.mark.parametrize("name", frameworks.NAMES)
def test_a_compromised_release_is_refused_before_it_runs(install: Install, name: str, version: str) -> None:
    """The two releases that an attacker published are refused by their metadata, without importing them."""
    install(name, version)

    with pytest.raises(ImportError, match=f"{name} {version} is a compromised release"):
        frameworks.decide()


def test_an_old_lightning_is_refused(install: Install) -> None:
    """Lightning 1.x has other hooks."""
    install("pytorch_lightning", "1.9.5")

    with pytest.raises(ImportError, match=r"pytorch_lightning 2\.0 or newer, found 1\.9\.5: pip install -U"):
        frameworks.decide()


@pytest.mark.parametrize("version", ["2.0", "2.0.0", "2.0.0rc1", "2.6.4", "2.7.0.dev20261101"])
def test_other_releases_from_2_on_are_taken(install: Install, version: str) -> None:
    """Development versions count as the release that they lead to."""
    install("lightning", version)

    assert str(frameworks.decide().version) == version


@pytest.fixture
def source_tree(loaded: Callable[[str], None], install: Install, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A process that has imported `lightning` from somewhere without metadata."""

    def no_metadata(distribution: str) -> str:
        raise importlib.metadata.PackageNotFoundError(distribution)

    loaded("lightning")
    monkeypatch.setattr(importlib.metadata, "version", no_metadata)
    return sys.modules["lightning"]


def test_a_source_tree_tells_its_own_version(source_tree: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without metadata the package's `__version__` counts."""
    monkeypatch.setattr(source_tree, "__version__", "1.8.0", raising=False)

    with pytest.raises(ImportError, match=r"found 1\.8\.0"):
        frameworks.decide()


@pytest.mark.usefixtures("source_tree")
def test_a_package_without_a_version_is_refused() -> None:
    """What cannot be told is not guessed."""
    with pytest.raises(ImportError, match="cannot tell the version of lightning, which calls itself 'None'"):
        frameworks.decide()


def test_modules_come_from_the_framework() -> None:
    """Both halves are reached by the same names in either framework."""
    framework = frameworks.current()

    pytorch = framework.pytorch("accelerators").__name__
    fabric = framework.fabric().__name__

    names = {
        "lightning": ("lightning.pytorch.accelerators", "lightning.fabric"),
        "pytorch_lightning": ("pytorch_lightning.accelerators", "lightning_fabric"),
    }
    assert (pytorch, fabric) == names[framework.name]


def test_the_decision_is_made_once(loaded: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Later imports and settings do not change it: classes already derive from one framework."""
    first = frameworks.current()
    other = next(name for name in frameworks.NAMES if name != first.name)
    loaded(other)
    monkeypatch.setenv("HPU_CORE_FRAMEWORK", other)

    assert frameworks.current() is first


def test_a_description_names_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object says which framework it belongs to."""
    framework = frameworks.current()
    monkeypatch.setattr(frameworks, "imported", lambda: (framework.name,))

    assert frameworks.describe(1) == f"<int of {framework.name} {framework.version}>"


def test_a_description_warns_of_a_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are imported, the object says what to do to use it with the other."""
    framework = frameworks.current()
    other = next(name for name in frameworks.NAMES if name != framework.name)
    monkeypatch.setattr(frameworks, "imported", lambda: frameworks.NAMES)

    assert f"{other}, which this program imports too, does not take it" in frameworks.describe(1)
    assert f"HPU_CORE_FRAMEWORK={other}" in frameworks.describe(1)


# Both frameworks are imported for real, which takes seconds: one process for all that can be seen in it.
_MIX = """
from hpu_core import SingleHPUStrategy
from {other} import Trainer
Trainer(accelerator="cpu", strategy=SingleHPUStrategy(), logger=False)
"""


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in frameworks.NAMES), reason="Requires: both Lightnings"
)
def test_a_mix_is_said_where_lightning_refuses_it() -> None:
    """A strategy of `lightning` in a Trainer of `pytorch_lightning` is an error that holds what to do."""
    command = [sys.executable, "-W", "ignore", "-c", _MIX.format(other="pytorch_lightning")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    *_, error = done.stderr.splitlines()
    assert error.startswith("ValueError: You selected an invalid strategy name: `strategy=<SingleHPUStrategy of light")
    assert "set HPU_CORE_FRAMEWORK=pytorch_lightning or import it before hpu_core>" in error
