"""Lightning 1.x's names for Gaudi, and the implementation of the import package `lightning_habana`.

The distribution has two import packages. `lightning_habana` has the import paths of the archived package. This one
restores names such as `pytorch_lightning.plugins.HPUPrecisionPlugin`, for which Lightning has stubs that raise.

Importing this package imports neither torch nor Lightning, starts no process and opens no device.
"""

from hpu_compat.__about__ import __version__

__all__ = ["__version__", "autoload", "install", "remove"]


def autoload() -> None:
    """Call `install` unless HPU_CORE_AUTOLOAD is "0".

    `import lightning_habana` calls this function. torch 2.5 and newer call it at the end of `import torch` (entry point
    `torch.backends`), where an exception would break torch, so it never raises.
    """
    try:
        from hpu_core import registration

        if registration.is_autoload_enabled():
            install()
    except Exception:
        import logging

        logging.getLogger(__name__).warning("Lightning's 1.x names for Gaudi are unavailable", exc_info=True)


def install() -> None:
    """Restore Lightning's 1.x names, now or once Lightning is imported; further calls do nothing.

    Afterwards, importing `lightning_habana` raises if the real `lightning-habana` is installed as well.
    """
    from hpu_compat import _finder, _legacy_names

    _finder.finder.install()
    _legacy_names.hook.install()


def remove() -> None:
    """Undo `install`."""
    from hpu_compat import _finder, _legacy_names

    _legacy_names.hook.remove()
    _legacy_names.unpatch()
    _finder.finder.remove()
