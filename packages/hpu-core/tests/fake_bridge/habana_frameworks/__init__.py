"""The package of the stand-in for the Gaudi bridge."""
