"""Traces in the Chrome trace format, as torch and the Gaudi bridge write them.

| module | contents |
|---|---|
| `model` | data model of a trace, independent of its writer |
| `reader` | files to the data model |
| `lanes` | what the bridge's lanes and categories mean |
| `event_collector` | JSON events to the data model, one by one |
| `correlation` | device events to the operators that launched them |
| `stages` | the stages of a trace: train, validate, test, predict |
| `call_stack` | nesting of operators and annotations: self time, innermost operator |
| `intervals` | set arithmetic on time intervals |

Imports go one way: `trace` imports neither `analysis` nor `report`.
"""
