"""`hpu-profiler report`: what traces say about where time goes, for a person and for a program.

| module | reason to exist |
|---|---|
| `model` | what a report says |
| `analysis` | a trace becomes that |
| `findings` | what a reader should look at first, and what to do |
| `text` | the report in a terminal |
| `html` | the report as a page, with `timeline` |
| `as_json` | the report for programs |
"""
