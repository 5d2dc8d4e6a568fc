"""Tests with third-party programs; a package, so that the name of its conftest differs from the suite's."""
