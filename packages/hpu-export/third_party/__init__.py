"""Round trips with other programs."""
