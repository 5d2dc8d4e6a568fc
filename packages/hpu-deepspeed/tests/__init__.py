"""Tests of hpu-deepspeed. A package, so that the processes of the ranks import these modules as pytest does."""
