"""Diagnosis of machines and jobs on Intel Gaudi (HPU): checks, known errors and collectives.

- `machine` and `holders`: the facts of a machine that the checks read
- `diagnosis`: what its cards and software lack for training
- `checks`: the checks of a machine
- `comparison`: the comparison of the machines of a job
- `known_errors`: cause, cure and source of known error messages
- `collectives`: the check of collectives between the ranks of a job
- `migrate`: CUDA idioms in a script, and what to write instead
- `verify`: the register of assumptions about cards, and programs that try them
- `text_report`: text reports
- `cli`: the command `hpu-doctor`

Importing this package imports no torch, no Lightning and no bridge, starts no process and opens no device.
"""

from hpu_doctor.__about__ import __version__

__all__ = ["__version__"]
