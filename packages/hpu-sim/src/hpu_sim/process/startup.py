"""Start-up of a Python process with ``HPU_SIM_DEVICES``: its machine, and the hooks that bring the device.

Called by ``hpu_sim.pth`` of the installed package, and by the site hook of subprocesses.
"""

from __future__ import annotations

import os

from hpu_sim.common import post_import
from hpu_sim.device import machine_id
from hpu_sim.process import import_hooks
from hpu_sim.process.autoload import autoload


def install() -> None:
    """Make ``import torch`` or an import of the bridge activate the simulator. Idempotent.

    torch < 2.5 loads no device backends, and newer ones only by default. No torch handles a program that imports the
    bridge first.
    """
    # Before any subprocess, whether or not this process imports torch.
    os.environ.update(machine_id.inherited_or_new(os.environ))
    if not import_hooks.is_installed():
        post_import.after_import("torch", autoload)
        import_hooks.import_torch_before_bridge()
