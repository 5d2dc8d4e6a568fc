"""What the archived package said about itself, as far as it holds for this one."""

__all__ = ["__docs__", "__license__", "__version__"]

# Programs compare it with the archived package's: the interface is that of its last pre-release, 1.7.0rc0, and what
# follows the plus sign says whose it is.
__version__ = "1.7.0+hpu.compat"
__license__ = "Apache-2.0"
__docs__ = "The import paths of lightning-habana, with hpu-core and its peers behind them"
