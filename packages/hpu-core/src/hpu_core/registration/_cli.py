"""Lightning's command lines: LightningCLI and `fabric run --accelerator=hpu --strategy=hpu_ddp --devices=2`."""

import logging
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Final

from hpu_core import discovery, frameworks, plugins
from hpu_core.registration import _patch, _registries

_log = logging.getLogger(__name__)

# As Lightning's command line, which starts the processes itself.
_OTHER_LAUNCHERS: Final = re.compile(r".*(spawn|fork|notebook|offload).*")


def load_classes(framework: frameworks.FrameworkName) -> None:
    """Import the classes that a Trainer accepts, as far as possible: LightningCLI lists imported subclasses."""
    frameworks.prefer(framework)
    if frameworks.import_error(framework) is not None:
        return
    for path in _class_paths():
        try:
            plugins.load(path)
        except Exception:  # noqa: BLE001, PERF203 - the program may not use it.
            _log.debug("LightningCLI does not list %s, which cannot be imported", path, exc_info=True)


def extend_options(module: ModuleType, framework: frameworks.FrameworkName) -> None:
    """Add the names of HPU to the choices of `--accelerator`, `--strategy` and `--precision` of `fabric run`."""
    if frameworks.import_error(framework) is not None:
        return
    try:
        import click
    except ImportError:
        # Lightning imports without click, and then has no commands.
        return
    commands = [value for value in vars(module).values() if isinstance(value, click.Command)]
    choices = {"accelerator": ["hpu"], "strategy": list(_strategies()), "precision": plugins.precisions()}
    for option in [option for command in commands for option in command.params if option.name in choices]:
        if isinstance(option.type, click.Choice):
            names = [*option.type.choices, *choices[str(option.name)]]
            _patch.undo.callback(setattr, option, "type", option.type)
            option.type = click.Choice(list(dict.fromkeys(names)))


def get_num_processes(
    original: Callable[..., int], framework: frameworks.FrameworkName, accelerator: str | None, devices: str
) -> int:
    """Return the number of processes that `fabric run` starts; replaces `_get_num_processes`.

    With "auto" it counts all devices, as Fabric does in the started processes. Errors are those of usage.
    """
    import click

    is_hpu = accelerator == "hpu" or (accelerator in {None, "auto"} and discovery.is_available())
    if not is_hpu or frameworks.import_error(framework) is not None:
        return original(accelerator, devices)
    try:
        count = discovery.parse_devices(devices)
        discovery.check_devices(count)
    except (RuntimeError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    return count


def _class_paths() -> Iterator[str]:
    yield from (_registries.ACCELERATOR, "hpu_core.checkpoints.plugin:HPUCheckpointIO")
    yield from {paths.trainer for paths in plugins.strategies().values() if paths.trainer is not None}
    for plugin in plugins.installed().values():
        if plugin.precision is not None and plugin.precision.trainer is not None:
            yield plugin.precision.trainer
        yield from plugin.profilers.values()


def _strategies() -> Iterator[str]:
    names = [name for name, paths in plugins.strategies().items() if paths.fabric is not None]
    yield from (name for name in [*names, *plugins.aliases()] if not _OTHER_LAUNCHERS.match(name))
