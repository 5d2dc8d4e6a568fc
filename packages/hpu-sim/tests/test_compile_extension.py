"""What the compiler's process prepares; tests/test_build.py runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def test_older_torch_finds_packaging_where_it_expects_it(output_of: Callable[..., str]) -> None:
    """Also with a setuptools that has no such module any more."""
    program = """
    import sys
    sys.modules["pkg_resources"] = None
    from hpu_sim._compile_extension import offer_pkg_resources
    offer_pkg_resources()
    from pkg_resources import packaging
    print(packaging.version.parse("2.10") > packaging.version.parse("2.9"))
    """

    assert output_of(program) == "True"
