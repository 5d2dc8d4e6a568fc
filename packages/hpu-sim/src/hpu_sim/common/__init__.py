"""Shared parts of the readiness report and the planner: frames of the program, formatting, encoding and rendering."""
