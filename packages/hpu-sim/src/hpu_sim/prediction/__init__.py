"""Prediction of a recorded step on a card: recording of operators and collectives, and models of time and of ZeRO.

The planner records a program whose kernels never run, the readiness report a step of a real run. Nothing is measured.
"""
