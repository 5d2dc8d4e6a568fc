"""What other distributions bring along, and how they say so: the contract between hpu-core and its peers.

A distribution declares one entry point in the group `hpu_core.plugins`, which is a `Plugin`::

    [project.entry-points."hpu_core.plugins"]
    hpu-ddp = "hpu_ddp._plugin:PLUGIN"

The module of that object must load neither Lightning nor torch: classes stand in it as text, "module:Class", and are
imported when a Trainer or Fabric needs them. hpu-core knows its peers from there only; nothing of theirs is named in
it, except what to install for something that is not there.

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

__all__ = ["GROUP", "Api", "ClassPaths", "Plugin", "installed", "load", "missing"]

GROUP: Final = "hpu_core.plugins"

Api = Literal["pytorch", "fabric"]

_log = logging.getLogger(__name__)

# What to install for a name that nothing offers, by the beginning of the name.
_OFFERED_BY: Final = {
    "hpu_parallel": "hpu-ddp",
    "hpu_ddp": "hpu-ddp",
    "ddp": "hpu-ddp",
    "hpu_deepspeed": "hpu-deepspeed",
    "deepspeed": "hpu-deepspeed",
}


@dataclass(frozen=True, slots=True)
class ClassPaths:
    """Where the class for something is, for the Trainer and for Fabric.

    Attributes:
        trainer: "module:Class", or None where the Trainer has none.
        fabric: The same for Fabric.
        options: Keyword arguments with which an instance is made.
    """

    trainer: str | None = None
    fabric: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def of(self, half: Api) -> str | None:
        """Return the class for one of Lightning's halves."""
        return self.trainer if half == "pytorch" else self.fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What a distribution offers.

    A strategy with a method `precision_plugin_for(precision: str)` gets its precision plugin from there, whatever
    plugin for precision is installed: DeepSpeed brings its own.

    Attributes:
        strategies: Strategies, by the name that users pass.
        default_multi_device: The one of them that is chosen for more than one card or machine.
        aliases: Names of Lightning's strategies that on Gaudi mean one of these.
        precision: Classes of precision plugins, made with the precision as their only argument.
        precisions: Values of `precision` that Lightning does not know.
        profilers: "module:Class" of profilers, by the name that users pass to the Trainer.
    """

    strategies: Mapping[str, ClassPaths] = field(default_factory=dict)
    default_multi_device: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    precision: ClassPaths | None = None
    precisions: frozenset[str] = frozenset()
    profilers: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def installed() -> Mapping[str, Plugin]:
    """Return the plugins of this environment by the names of their distributions, in alphabetical order.

    One that cannot be loaded is left out, and a warning is logged: it must not keep a Trainer from using the CPU.
    """
    plugins = {}
    for entry in sorted(entry_points(group=GROUP), key=_distribution):
        try:
            plugin = entry.load()
            if not isinstance(plugin, Plugin):
                _log.warning("%s must be a hpu_core.registration.plugins.Plugin, got %r", entry.value, plugin)
                continue
        except Exception:  # noqa: BLE001 - whatever keeps it from being loaded is not the Trainer's affair.
            _log.warning("%s is installed and cannot be loaded", _distribution(entry), exc_info=True)
            continue
        plugins[_distribution(entry)] = plugin
    return plugins


def missing(name: str) -> ModuleNotFoundError | None:
    """Return the error for a strategy whose distribution is not installed; None for one that nobody is known to offer.

    Args:
        name: The strategy's name.
    """
    distribution = next((offer for start, offer in _OFFERED_BY.items() if name.startswith(start)), None)
    if distribution is None or distribution in installed():
        return None
    return not_installed(f"`strategy={name!r}` on Gaudi", distribution)


def not_installed(what: str, distribution: str) -> ModuleNotFoundError:
    """Return the error for something that a distribution offers which is not installed."""
    return ModuleNotFoundError(
        f"{what} needs {distribution}, which is not installed: pip install {distribution}",
        name=distribution.replace("-", "_"),
    )


def load(target: str) -> Any:
    """Import what "module:name" stands for."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _distribution(entry: EntryPoint) -> str:
    """Return the name of the distribution that an entry point is from, as pip writes it."""
    return entry.dist.name.replace("_", "-").lower() if entry.dist else entry.name
