"""Media pipes of the vendor, simulated: ImageNet's readers and operators, decoded by Pillow on the host."""
