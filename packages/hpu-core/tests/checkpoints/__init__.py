"""Tests of hpu_core.checkpoints. A package, so that its modules may be named as those of other folders."""
