"""Options of Fabric's command line: `fabric run --accelerator=hpu --strategy=hpu_ddp --devices=2 script.py`."""

import functools
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_core import frameworks, plugins

if TYPE_CHECKING:
    import click

    from hpu_core.frameworks import FrameworkName

# As Lightning's command line, which starts the processes itself.
_OTHER_LAUNCHERS: Final = re.compile(r".*(spawn|fork|notebook|offload).*")

# Options and their types before `extend_options`.
_saved_types: "Final[list[tuple[click.Parameter, click.ParamType[Any]]]]" = []


def extend_options(module: ModuleType, framework: "FrameworkName") -> None:
    """Add the names of HPU to the choices of `--accelerator`, `--strategy` and `--precision`.

    Args:
        module: Lightning's `fabric.cli`.
        framework: The framework that it belongs to.
    """
    if frameworks.import_error(framework) is not None:
        return
    try:
        import click
    except ImportError:
        # Lightning imports without click, and then has no commands.
        return
    commands = [value for value in vars(module).values() if isinstance(value, click.Command)]
    choices = {"accelerator": ["hpu"], "strategy": list(_strategies()), "precision": list(_precisions())}
    for option in [option for command in commands for option in command.params if option.name in choices]:
        if isinstance(option.type, click.Choice):
            names = [*option.type.choices, *choices[str(option.name)]]
            _saved_types.append((option, option.type))
            option.type = click.Choice(list(dict.fromkeys(names)))


def restore() -> None:
    """Undo `extend_options`."""
    while _saved_types:
        option, option_type = _saved_types.pop()
        option.type = option_type


def get_num_processes(original: Callable[..., int], framework: "FrameworkName") -> Callable[..., int]:
    """Return a replacement for `_get_num_processes` that counts Gaudi devices; its errors are those of usage.

    With "auto" it counts all devices, as Fabric does in the started processes.
    """

    @functools.wraps(original)
    def wrapper(accelerator: str | None, devices: str) -> int:
        import click

        from hpu_core import discovery

        is_hpu = accelerator == "hpu" or (accelerator in {None, "auto"} and discovery.is_available())
        if not is_hpu or frameworks.import_error(framework) is not None:
            return original(accelerator, devices)
        try:
            count = discovery.parse_devices(devices)
            discovery.check_devices(count)
        except (RuntimeError, ValueError) as error:
            raise click.UsageError(str(error)) from None
        return count

    return wrapper


def _strategies() -> Iterator[str]:
    yield "hpu_single"
    for plugin in plugins.installed().values():
        names = [name for name, paths in plugin.strategies.items() if paths.fabric is not None]
        yield from (name for name in [*names, *plugin.aliases] if not _OTHER_LAUNCHERS.match(name))


def _precisions() -> Iterator[str]:
    for plugin in plugins.installed().values():
        yield from sorted(plugin.precisions)
