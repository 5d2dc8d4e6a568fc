"""Default configurations of Intel Neural Compressor for inference in fp8: measure, then quantize."""
