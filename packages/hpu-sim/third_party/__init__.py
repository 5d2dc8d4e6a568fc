"""Tests with other people's programs; a package, so that its conftest has a name of its own beside the suite's."""
