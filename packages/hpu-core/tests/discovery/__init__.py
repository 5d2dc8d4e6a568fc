"""Tests of hpu_core.discovery. A package, because other test folders have modules of the same names."""
