"""The compiler backend and its options."""
