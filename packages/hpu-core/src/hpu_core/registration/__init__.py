"""Makes Lightning know Gaudi cards by name: `Trainer(accelerator="hpu")` with nothing imported but Lightning.

Current Lightning refuses that name, trains on the CPU when it gets an HPUAccelerator without a strategy, and looks for
its precision plugins among CUDA's. No registry changes that: its two connectors decide, one for the Trainer and one
for Fabric. So, once Lightning has defined a connector, a subclass of it takes its place, which decides what concerns
Gaudi and leaves everything else to Lightning. No class of Lightning's is changed, and `remove` undoes it.

This package alone touches those private names. A Lightning whose connectors are made otherwise is left as it is,
and a message says so.

Its modules, and what for:

- `_presence`: is there a card or a simulator, decided in microseconds
- `imports`: act on a module once it has been imported
- `_hook`: which modules of Lightning's are acted on, and how
- `_swap`: put subclasses in the place of Lightning's connectors, and back
- `_connectors`: the decisions
- `_callbacks`: what callbacks ask of functions that know CUDA alone
- `_command_line`: the classes that LightningCLI offers
- `_profilers`: the names of profilers
- `_lightning_2_0`: importing Lightning 2.0 beside a bridge without HMP
- `_registries`: the names in Lightning's registries
- `plugins`: what other distributions bring along: strategies, precision, profilers

Importing this module loads neither torch nor Lightning.
"""

import os

__all__ = ["AUTOLOAD", "autoload", "install", "is_allowed", "is_wanted", "remove"]

AUTOLOAD = "HPU_CORE_AUTOLOAD"


def autoload() -> None:
    """Do what `install` does, on machines with a card or the simulator, unless HPU_CORE_AUTOLOAD is "0".

    Called by `import hpu_core`, and by torch 2.5 or newer at the end of `import torch` (entry point `torch.backends`),
    where an error would make torch itself unusable: this never raises.
    """
    try:
        if is_wanted():
            install()
    except Exception:
        import logging

        logging.getLogger(__name__).warning("Lightning will not know Gaudi cards by name", exc_info=True)


def is_allowed() -> bool:
    """Tell whether Lightning may be taught about Gaudi without being asked to: HPU_CORE_AUTOLOAD is not "0"."""
    return os.environ.get(AUTOLOAD) != "0"


def is_wanted() -> bool:
    """Tell whether Lightning is to be taught about Gaudi without being asked to: allowed, and a card or the simulator.

    Takes microseconds, and guesses where it cannot know: `hpu_core.is_available` gives the real answer.
    """
    if not is_allowed():
        return False
    from hpu_core.registration import _presence

    return _presence.is_likely()


def install() -> None:
    """Have Lightning know Gaudi cards, whether it has been imported already or will be. Calling it again does nothing.

    `autoload` does this where it finds a card or the simulator, and so does the use of `hpu_core.HPUAccelerator`
    anywhere. A program that starts the simulator with `hpu_sim.activate()` after it has imported torch calls it to use
    "hpu" as a string.
    """
    from hpu_core.registration import _hook

    _hook.install()


def remove() -> None:
    """Undo `install`: Lightning is as it was. Trainers that exist keep what they have."""
    from hpu_core.registration import _hook

    _hook.remove()
