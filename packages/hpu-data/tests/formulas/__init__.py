"""Stand-in for torchvision: the part that these tests need, from its published formulas, on Pillow.

torchvision itself needs a torch of its own build. The tests in third_party/ compare both.
"""
