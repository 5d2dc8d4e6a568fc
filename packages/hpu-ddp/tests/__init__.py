"""Tests of hpu-ddp. A package, so that the processes of the ranks import these modules as pytest does."""
