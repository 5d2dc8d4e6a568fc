"""Subprocess of the compiler; tests/test_build.py runs all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def test_pkg_resources_is_restored(output_of: Callable[..., str]) -> None:
    """Torch < 2.1 imports `packaging` from a module that setuptools no longer has."""
    program = """
    import sys
    sys.modules["pkg_resources"] = None
    from hpu_sim.device._compile_extension import restore_pkg_resources
    restore_pkg_resources()
    from pkg_resources import packaging
    print(packaging.version.parse("2.10") > packaging.version.parse("2.9"))
    """

    assert output_of(program) == "True"
