"""Programs that take long, which CI does not run."""
