"""Analyses of traces: pure functions from the data model to results.

| module | contents |
|---|---|
| `operators` | time and memory by operator |
| `idle_time` | idle time of the device, by what the host did meanwhile |
| `device_events` | collectives and copies |
| `trace_analysis` | all results for one trace |
| `recommendations` | what to change, most important first |
| `job` | all ranks of a job together: names, straggler, recommendations |

Imports go one way: `analysis` imports `trace`, and not `report`.
"""
