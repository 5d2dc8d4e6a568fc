"""Tests of the bridge; a package, so that its conftest has a name of its own beside the suite's."""
