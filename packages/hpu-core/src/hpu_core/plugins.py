"""Plugins: strategies, precision plugins and profilers that other distributions add to hpu-core.

A distribution declares one entry point in the group `hpu_core.plugins`, whose object is a `Plugin`:

    [project.entry-points."hpu_core.plugins"]
    hpu-ddp = "hpu_ddp._plugin:PLUGIN"

The module of that object must import neither torch nor Lightning. It names classes as text, "module:Class"; they are
imported when a Trainer or Fabric needs them. hpu-core has no other reference to these distributions, apart from what to
install for a name that nothing provides.

>>> plugin = Plugin(
...     strategies={"hpu_parallel": ClassPaths("peer.strategy:HPUParallelStrategy", "peer.fabric:HPUParallelStrategy")},
...     default_multi_device="hpu_parallel",
...     aliases={"ddp": "hpu_parallel"},
... )
>>> plugin.strategies["hpu_parallel"].of("fabric")
'peer.fabric:HPUParallelStrategy'
"""

import functools
import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

from hpu_core.install_hints import install_command

GROUP: Final = "hpu_core.plugins"
"""Entry point group of plugins."""

Api = Literal["pytorch", "fabric"]
"""Either of Lightning's APIs, "pytorch" for the Trainer or "fabric" for Fabric."""

_log = logging.getLogger(__name__)

# Prefixes of the names of strategies that distributions provide, for the error if one is not installed.
_PREFIXES: Final = {
    "hpu-ddp": ("hpu_parallel", "hpu_ddp", "ddp"),
    "hpu-deepspeed": ("hpu_deepspeed", "deepspeed"),
    "hpu-fsdp": ("hpu_fsdp", "fsdp", "hpu_model_parallel", "modelparallel"),
}

_PRECISIONS: Final = ("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true", "fp8")
# The Trainer's aliases from earlier versions of Lightning.
_PRECISION_ALIASES: Final = {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}


@dataclass(frozen=True, slots=True)
class ClassPaths:
    """Import paths of a class for the Trainer and of its counterpart for Fabric.

    Attributes:
        trainer: "module:Class", or None if there is no class for the Trainer.
        fabric: The same for Fabric.
        options: Keyword arguments that the class is constructed with.
    """

    trainer: str | None = None
    fabric: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def of(self, api: Api) -> str | None:
        """Return the path for one of Lightning's APIs."""
        return self.trainer if api == "pytorch" else self.fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """Classes that a distribution provides.

    A strategy may define `precision_plugin_for(precision: str)`, which then replaces every other precision plugin, as
    DeepSpeed requires.

    Attributes:
        strategies: Strategies by name.
        default_multi_device: Name of the strategy that is the default for several devices or nodes.
        default_notebook: Name of the strategy that is the default for several devices in an interactive interpreter.
        aliases: Names of Lightning's strategies that mean one of these strategies on HPU.
        replacements: Names of these strategies by the class of Lightning's whose instances they replace on HPU. The
            class of such a strategy has a class method `from_lightning(strategy)`, which keeps the arguments.
        precision: Precision plugin classes, constructed with the precision as their only argument.
        precisions: Values of `precision` that Lightning does not accept by itself.
        profilers: "module:Class" of profilers by name.
    """

    strategies: Mapping[str, ClassPaths] = field(default_factory=dict)
    default_multi_device: str | None = None
    default_notebook: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    replacements: Mapping[str, str] = field(default_factory=dict)
    precision: ClassPaths | None = None
    precisions: frozenset[str] = frozenset()
    profilers: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def installed() -> Mapping[str, Plugin]:
    """Return the installed plugins by distribution name, in alphabetical order.

    A plugin that cannot be loaded is skipped with a warning in the log, because a CPU Trainer does not need it.
    """
    plugins = {}
    for entry in sorted(entry_points(group=GROUP), key=_distribution):
        try:
            plugin = entry.load()
        except Exception:  # noqa: BLE001 - loading runs code of another distribution.
            _log.warning("cannot load the plugin of %s", _distribution(entry), exc_info=True)
            continue
        if isinstance(plugin, Plugin):
            plugins[_distribution(entry)] = plugin
        else:
            _log.warning("%s must be a hpu_core.plugins.Plugin, got %r", entry.value, plugin)
    return plugins


def strategies() -> dict[str, ClassPaths]:
    """Return all strategies by name: hpu-core's own, and those of plugins."""
    found = {"hpu_single": ClassPaths("hpu_core.strategy:SingleHPUStrategy", "hpu_core.fabric:FabricSingleHPUStrategy")}
    for plugin in installed().values():
        found.update(plugin.strategies)
    return found


def aliases() -> dict[str, str]:
    """Return the names of strategies by the names of Lightning's that mean them on HPU."""
    return {alias: name for plugin in installed().values() for alias, name in plugin.aliases.items()}


def precisions() -> list[str]:
    """Return the values of `precision` that plugins add to Lightning's, sorted."""
    return sorted(precision for plugin in installed().values() for precision in plugin.precisions)


def load(path: str) -> Any:
    """Import the class of a path "module:Class"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def missing_strategy_error(name: str) -> ModuleNotFoundError | None:
    """Return the error for a strategy whose distribution is not installed; None if it is, or if none is known."""
    distribution = next((each for each, prefixes in _PREFIXES.items() if name.startswith(prefixes)), None)
    if distribution is None or distribution in installed():
        return None
    return not_installed_error(f"`strategy={name!r}` on Gaudi", distribution)


def not_installed_error(feature: str, distribution: str) -> ModuleNotFoundError:
    """Return the error for a feature whose distribution is not installed."""
    return ModuleNotFoundError(
        f"{feature} needs {distribution}, which is not installed: {install_command(distribution)}",
        name=distribution.replace("-", "_"),
    )


def float64_error(precision: object) -> ValueError:
    """Return the error for a precision of 64 bit."""
    return ValueError(
        f"`precision` must be at most 32 bit on Gaudi, got {precision!r}: a card stores and computes float64 as "
        "float32; pass '32-true', or train in float64 with `accelerator='cpu'`"
    )


def normalize_precision(precision: object, engine: str = "Gaudi") -> Any:
    """Return Lightning's canonical name of a precision.

    Args:
        precision: The `precision` of the Trainer or of Fabric.
        engine: "DeepSpeed" or "FSDP" for its own precision plugin, for the error message.

    Raises:
        ValueError: The precision is not supported.

    >>> normalize_precision("bf16", "FSDP"), normalize_precision(32, "FSDP"), normalize_precision("16-true", "FSDP")
    ('bf16-mixed', '32-true', '16-true')
    """
    name = _PRECISION_ALIASES.get(str(precision), precision)
    if name == "64-true":
        raise float64_error(precision)
    if name not in _PRECISIONS:
        raise ValueError(
            f"`precision` must be {', '.join(map(repr, _PRECISIONS[:-1]))} or {_PRECISIONS[-1]!r} with {engine}, got "
            f"{precision!r}"
        )
    return name


def _distribution(entry: EntryPoint) -> str:
    """Return the normalized name of the distribution of an entry point."""
    return entry.dist.name.replace("_", "-").lower() if entry.dist else entry.name
