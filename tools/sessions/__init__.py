"""nox sessions of this repository."""
