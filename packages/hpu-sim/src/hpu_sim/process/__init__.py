"""Activation of the simulator in a process and its children.

:mod:`~hpu_sim.process.activation` brings the device. ``hpu_sim.pth`` and the site hook call
:mod:`~hpu_sim.process.startup`, torch calls :mod:`~hpu_sim.process.autoload`, and
:mod:`~hpu_sim.process.subprocess_env` has the variables that children inherit.
"""
