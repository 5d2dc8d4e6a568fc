"""Graph, nodes and tensors of media pipes."""
