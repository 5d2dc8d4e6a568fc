"""Tests of hpu_core.registration. A package, because other test folders have modules of the same names."""
