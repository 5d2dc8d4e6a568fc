"""The nox sessions of this repository, a module per reason to run something."""
