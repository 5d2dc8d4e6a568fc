"""Compiler backend and its options."""
