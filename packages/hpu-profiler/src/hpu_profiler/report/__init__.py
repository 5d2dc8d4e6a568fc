"""Renderers for the results of `hpu_profiler.analysis`.

| module | contents |
|---|---|
| `text` | tables for a terminal |
| `json` | plain values under stable keys |
| `html` | one page without scripts, with `timeline` |

Imports go one way: nothing but the command imports `report`.
"""
