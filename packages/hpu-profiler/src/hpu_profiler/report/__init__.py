"""Renderers for the results of `hpu_profiler.analysis`.

| module | contents |
|---|---|
| `text` | tables for a terminal |
| `json` | plain values under stable keys |
| `html` | one page with the tables, and with `page.js` and its neighbors to explore the events |
| `page_data` | the events as compressed columns, for the page |
| `call_tree` | nested spans summed by name and caller, for the page |
| `diff` | differences between two jobs for a terminal |
| `server` | local web server with the pages of all runs in a folder |

Imports go one way: nothing but the command imports `report`.
"""
