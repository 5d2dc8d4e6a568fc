"""Renderers for the results of `hpu_profiler.analysis`.

| module | contents |
|---|---|
| `tables` | tables of texts, which the terminal and the page show alike |
| `text` | the report for a terminal |
| `json` | plain values under stable keys |
| `html` | one page with the tables and charts |

Imports go one way: nothing but the command and the profiler's summary imports `report`.
"""
