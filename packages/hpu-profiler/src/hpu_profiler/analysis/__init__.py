"""Analyses of traces: pure functions from the data model to results.

| module | contents |
|---|---|
| `operators` | time and memory by operator |
| `host_work` | time of the host by Lightning's action, callback, logger, DataLoader and user's line |
| `host_sync` | calls that wait for a value from the device |
| `idle_time` | idle time of the device, by what the host did meanwhile |
| `kernels` | time by engine, graph and kernel |
| `device_events` | collectives, and directions of copies |
| `recompilation` | graph compilations and changing shapes |
| `trace_analysis` | all results for one stage of one rank |
| `findings` | what to change in a stage, largest saving first |
| `job` | all ranks and stages of a job: straggler, operators, findings |

Imports go one way: `analysis` imports `trace`, and not `report`.
"""
