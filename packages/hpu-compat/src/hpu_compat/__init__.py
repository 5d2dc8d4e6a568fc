"""What code that was written for `lightning-habana` or Lightning 1.x finds here under the names it knows.

The distribution has two import packages. `lightning_habana` has the archived package's import paths. This one holds
what they are made of, and gives Lightning its 1.x names back: `pytorch_lightning.plugins.HPUPrecisionPlugin` and its
like, in place of the stubs that say "has been removed".

Its modules, and what for:

- `_behind`: which class of which package is behind a name
- `_lazy`: fetch a name when it is first used, or say what to install
- `_absent`: the names that nothing is behind, and why
- `_hook`: wait for Lightning and for `lightning_habana`
- `_beside`: refuse to sit beside the real `lightning-habana`
- `_names`: Lightning's 1.x names

Importing this package loads neither torch nor Lightning, starts no process and opens no card.
"""

from hpu_compat.__about__ import __version__

__all__ = ["__version__", "autoload", "install", "remove"]


def autoload() -> None:
    """Do what `install` does, where hpu-core teaches Lightning about Gaudi unasked: see `hpu_core.registration`.

    Called by `import lightning_habana`, and by torch 2.5 or newer at the end of `import torch` (entry point
    `torch.backends`), where an error would make torch itself unusable: this never raises.
    """
    try:
        from hpu_core import registration

        if registration.should_autoload():
            install()
    except Exception:
        import logging

        logging.getLogger(__name__).warning("Lightning will not have its 1.x names for Gaudi", exc_info=True)


def install() -> None:
    """Give Lightning its 1.x names, whether it has been imported already or will be. Calling it again does nothing.

    From then on, `lightning_habana` cannot be imported where the real `lightning-habana` is installed, too.
    """
    from hpu_compat import _hook

    _hook.install()


def remove() -> None:
    """Undo `install`: Lightning's names are what they were."""
    from hpu_compat import _hook

    _hook.remove()
