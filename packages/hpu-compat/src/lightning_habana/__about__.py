"""Metadata of the interface: version, license and description."""

__all__ = ["__docs__", "__license__", "__version__"]

# Programs compare versions, and the interface is that of the archived package's last pre-release, 1.7.0rc0. The local
# version identifies this distribution.
__version__ = "1.7.0+hpu.compat"
__license__ = "Apache-2.0"
__docs__ = "Import paths of lightning-habana, implemented by hpu-core and its peers"
