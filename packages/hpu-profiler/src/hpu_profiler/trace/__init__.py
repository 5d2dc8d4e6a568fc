"""Traces in the Chrome trace format, as torch and the Gaudi bridge write them.

| module | contents |
|---|---|
| `model` | data model of a trace, independent of its writer |
| `reader` | JSON files to the data model |
| `correlation` | device events to the operators that launched them |
| `call_stack` | nesting of operators and annotations: self time, innermost operator |
| `intervals` | set arithmetic on time intervals |

Imports go one way: `trace` imports neither `analysis` nor `report`.
"""
