"""Tests of the callbacks."""
