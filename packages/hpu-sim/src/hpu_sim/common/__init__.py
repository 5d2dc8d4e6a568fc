"""What the readiness report and the planner share: frames of the program, formatting, encoding, and rendering."""
