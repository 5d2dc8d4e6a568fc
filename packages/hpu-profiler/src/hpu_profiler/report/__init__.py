"""Renderers for the results of `hpu_profiler.analysis`.

| module | contents |
|---|---|
| `tables` | tables of texts |
| `text` | the report for a terminal, which rich also writes as a page |
| `json` | plain values under stable keys |

Imports go one way: nothing but the command and the profiler's summary imports `report`.
"""
