"""Arguments of HPUProfiler that go to torch.profiler.profile.

Up to SynapseAI 1.19 the bridge replaces `torch.profiler.ProfilerActivity` by an enum of its own when it is imported.
Code that imported the name before has members of another enum than the bridge's profiler expects. Activities are
therefore looked up by name when recording starts, and the order of imports does not matter.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import torch.profiler

from hpu_profiler._lightning import rank_zero_warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PROFILE_VARIABLE: Final = "HABANA_PROFILE"
_DISABLED: Final = "0"
_HPU: Final = "HPU"
#: Argument of the bridge's profiler up to SynapseAI 1.19.
_BRIDGE_ARGUMENTS: Final = frozenset({"debug_activities"})


def validate_names(names: Iterable[str]) -> None:
    """Raise unless torch's profiler takes the arguments.

    Raises:
        TypeError: The profiler of the installed torch does not have an argument.
    """
    unknown = set(names) - _BRIDGE_ARGUMENTS - set(inspect.signature(torch.profiler.profile.__init__).parameters)
    if unknown:
        raise TypeError(
            f"unknown arguments {sorted(unknown)}: neither HPUProfiler nor torch.profiler.profile of torch "
            f"{torch.__version__} has them"
        )


def torch_options(arguments: Mapping[str, Any], *, on_device: bool, verbose: bool) -> dict[str, Any]:
    """Return the arguments for torch.profiler.profile, with activities of the current enum."""
    parameters = inspect.signature(torch.profiler.profile.__init__).parameters
    options = {name: value for name, value in arguments.items() if name in parameters and value is not None}
    options["activities"] = _look_up(activity_names(arguments.get("activities"), on_device=on_device))
    if verbose and "experimental_config" in parameters:
        # torch leaves stacks out of `export_stacks` without this, and has no public class for it.
        config = torch._C._profiler._ExperimentalConfig(verbose=True)  # noqa: SLF001
        options.setdefault("experimental_config", config)
    return options


def activity_names(activities: Iterable[Any] | None, *, on_device: bool) -> list[str]:
    """Return the names of the activities to record.

    Args:
        activities: Members of any ProfilerActivity enum; None for the CPU, and for the HPU if there is a device.
        on_device: Whether the process uses a device.
    """
    if activities is None:
        return ["CPU", _HPU] if on_device else ["CPU"]
    names = [str(activity.name) for activity in activities]
    # Without a device, torch would warn or fail.
    return names if on_device else [name for name in names if name != _HPU] or ["CPU"]


def _look_up(names: Iterable[str]) -> list[Any]:
    activities = []
    for name in names:
        if hasattr(torch.profiler.ProfilerActivity, name):
            activities.append(getattr(torch.profiler.ProfilerActivity, name))
        else:
            rank_zero_warn(
                f"HPUProfiler does not record {name} activity: torch {torch.__version__} has no "
                f"ProfilerActivity.{name}, and the bridge did not add one."
            )
    return activities


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise if HABANA_PROFILE disables torch's profiler, of any activity.

    The bridge sets the variable to "profile_api_light" when it is imported, unless it has a value. It refuses "0" only;
    SynapseAI interprets the others.

    Raises:
        RuntimeError: The variable is "0".
    """
    # hpu-doctor verify: import-sets-up-torch
    if environment.get(_PROFILE_VARIABLE) == _DISABLED:
        raise RuntimeError(
            f"{_PROFILE_VARIABLE} must not be '0' for HPUProfiler, got '0', with which the bridge disables torch's "
            f"profiler. Run `unset {_PROFILE_VARIABLE}` and start the program again, or train without HPUProfiler."
        )
