"""Canary: names of Lightning that hpu-core overrides, replaces or reads although they are not public.

A rename in a new Lightning would turn such code into dead code without an error. Each row of the table fails then.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from packaging.version import Version

from hpu_core import frameworks
from hpu_core.registration import _connectors, _patch, _replacements

_framework = frameworks.current()


class _Row(NamedTuple):
    """A private name.

    Attributes:
        owner: Module, class or instance that has the name, as a key for `_owner`.
        name: The name.
        replacement: Function of hpu-core in its place, which must accept the same arguments; None for an attribute.
        versions: First Lightning that has the name, and the first that no longer has it.
    """

    owner: str
    name: str
    replacement: Callable[..., Any] | None = None
    versions: tuple[str, str] = ("2.0", "99")


@functools.cache
def _owner(name: str) -> Any:
    pytorch, fabric = _framework.pytorch, _framework.fabric
    owners: dict[str, Callable[[], Any]] = {
        "trainer connector": lambda: _unpatched(
            pytorch("trainer.connectors.accelerator_connector")._AcceleratorConnector
        ),
        "trainer connector instance": lambda: _owner("trainer connector")(accelerator="cpu"),
        "fabric connector": lambda: _unpatched(fabric("connector")._Connector),
        "fabric connector instance": lambda: _owner("fabric connector")(accelerator="cpu"),
        "checkpoint wrapper instance": lambda: pytorch("plugins.io.wrapper")._WrappingCheckpointIO(None),
    }
    return owners[name]() if name in owners else pytorch(name) if name in _PYTORCH_MODULES else fabric(name)


def _unpatched(connector: Any) -> Any:
    return connector.__bases__[-1] if issubclass(connector, _connectors.HPUConnectorMixin) else connector


_PYTORCH_MODULES = {
    "accelerators.hpu",
    "plugins.io.async_plugin",
    "trainer.setup",
    "utilities.memory",
}


def _wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    return _patch.make_replacement(lambda *_, **__: None, _framework.name, function)  # type: ignore[no-any-return]


_ROWS = [
    *(
        _Row(connector, name, getattr(_connectors.HPUConnectorMixin, name))
        for connector in ("trainer connector", "fabric connector")
        for name in _connectors.HPUConnectorMixin.REQUIRED
    ),
    *(
        _Row(connector, name)
        for connector in ("trainer connector instance", "fabric connector instance")
        for name in ("_accelerator_flag", "_devices_flag", "_num_nodes_flag", "_parallel_devices", "_strategy_flag")
    ),
    *(_Row("trainer connector instance", name) for name in ("_precision_flag", "_precision_plugin_flag")),
    *(_Row("fabric connector instance", name) for name in ("_precision_input", "_precision_instance")),
    _Row("accelerators.hpu", "_HPU_AVAILABLE", versions=("2.0", "2.1")),
    _Row("plugins.io.async_plugin", "_clone_tensor", _wrapper(_replacements.clone_tensor), ("2.5.6", "99")),
    _Row("trainer.setup", "_init_profiler", _wrapper(_replacements.init_profiler)),
    _Row("trainer.setup", "_log_device_info", _wrapper(_replacements.log_device_info)),
    _Row("utilities.memory", "is_oom_error", _wrapper(_replacements.is_oom_error)),
    _Row("utilities.seed", "_collect_rng_states", _wrapper(_replacements.collect_rng_states)),
    _Row("utilities.seed", "_set_rng_states", _wrapper(_replacements.set_rng_states)),
    _Row("checkpoint wrapper instance", "_checkpoint_io"),
]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row.owner}.{row.name}")
def test_private_name_exists(row: _Row) -> None:
    first, removed = map(Version, row.versions)
    if not first <= _framework.version < removed:
        pytest.skip(f"Requires: Lightning from {first} to before {removed}")
    original = inspect.unwrap(getattr(_owner(row.owner), row.name))

    if row.replacement is not None:
        assert _accepts_arguments_of(row.replacement, original)


def _accepts_arguments_of(replacement: Callable[..., Any], original: Callable[..., Any]) -> bool:
    """Return whether a function accepts all arguments of another one, by position or by keyword."""
    names = [name for name in inspect.signature(original).parameters if name != "self"]
    # Not that of `__wrapped__`, which replacements copy.
    signature = inspect.signature(replacement, follow_wrapped=False)
    receiver: list[object] = [None] if "self" in signature.parameters else []
    return _can_bind(signature, [*receiver, *names], {}) or _can_bind(signature, receiver, dict.fromkeys(names))


def _can_bind(signature: inspect.Signature, positional: Sequence[object], keywords: Mapping[str, object]) -> bool:
    try:
        signature.bind(*positional, **keywords)
    except TypeError:
        return False
    return True


def test_flags_of_connectors_are_passed_by_name() -> None:
    """`_check_config_and_set_final_flags` of the mixin reads these keywords."""
    for connector in ("trainer connector", "fabric connector"):
        method = _owner(connector)._check_config_and_set_final_flags

        assert {"accelerator", "precision", "strategy"} <= set(inspect.signature(method).parameters)


def test_table_has_every_override() -> None:
    """Every private method of the mixin that is not hpu-core's own is an override."""
    private = {
        name for name in vars(_connectors.HPUConnectorMixin) if name.startswith("_") and not name.startswith("__")
    }
    own = {"_is_hpu", "_is_single_device_strategy", "_may_choose_hpu", "_module_ids", "_import_error"}

    assert private - own == set(_connectors.HPUConnectorMixin.REQUIRED)
