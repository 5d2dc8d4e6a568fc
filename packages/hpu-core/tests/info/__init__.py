"""Tests of hpu_core.info. A package, because other test folders have modules of the same names."""
