"""Tests of hpu-deepspeed. A package, so that rank processes import these modules under the same names as pytest."""
