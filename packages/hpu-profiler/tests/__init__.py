"""Tests of hpu-profiler. A package, so that processes of their own import these modules as pytest does."""
