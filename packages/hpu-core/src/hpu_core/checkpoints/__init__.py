"""Checkpoints: files and folders that are replaced only by what a save writes, and only once that is complete."""
