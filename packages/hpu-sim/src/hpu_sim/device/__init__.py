"""The simulated device: its configuration, its build and state in a process, and its counters.

:mod:`~hpu_sim.device.config` validates a machine. :mod:`~hpu_sim.device.build` compiles and loads the C++ extension, of
the type :mod:`~hpu_sim.device.native`. :mod:`~hpu_sim.device.runtime` holds both while the simulator is active.
"""
