"""Tests of the C++ extension; a package, so that its conftest has a name of its own beside the suite's."""
