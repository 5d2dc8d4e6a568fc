"""``torch.compile`` on hpu: ``backend="hpu_backend"``, in eager mode only."""

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.post_import import after_import


def register_when_imported() -> None:
    """Register the backend with dynamo once a program imports it: most do not, and it takes seconds."""
    if not is_lazy():
        after_import("torch._dynamo", _register)


def _register() -> None:
    from habana_frameworks.torch.dynamo import device_interface
    from habana_frameworks.torch.dynamo.compile_backend import backends

    device_interface.register()
    backends.register()
