"""Build of the simulated device for a command, whose errors are one sentence."""

from __future__ import annotations

import os

import click

from hpu_sim.device.config import DEVICES_VARIABLE


def build_device() -> str:
    """Build the device if it is not built, and return its name.

    Raises:
        click.ClickException: If it cannot be built; in a script this would be a traceback out of `import torch`.
    """
    os.environ.pop(DEVICES_VARIABLE, None)
    from hpu_sim.device.build import BuildError, ensure_built

    try:
        return ensure_built().name
    except BuildError as error:
        raise click.ClickException(str(error)) from error
