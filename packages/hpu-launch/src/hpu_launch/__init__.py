"""Commands, batch scripts and manifests that start a training job on Intel Gaudi (HPU).

Importing this package imports no torch, no Lightning and no bridge, starts no process and opens no device.
"""

from hpu_launch.__about__ import __version__

__all__ = ["__version__"]
