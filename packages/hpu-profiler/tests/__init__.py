"""Tests of hpu-profiler. A package, because subprocesses import its modules under the same names as pytest does."""
