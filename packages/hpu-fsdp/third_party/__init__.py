"""Programs of other projects on two simulated devices, whose accelerator is all that changes."""
