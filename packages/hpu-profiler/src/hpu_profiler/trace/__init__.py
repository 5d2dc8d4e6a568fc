"""Traces in Chrome's format, as torch and the Gaudi bridge write them: read, taken apart, and added up.

| module | reason to exist |
|---|---|
| `model` | what a trace tells, whoever wrote it |
| `reading` | files become that |
| `nesting` | which operator was running, and what called what |
| `linking` | which operator launched a card's work |
| `operators` | time and memory by operator |
| `spans` | arithmetic of intervals |
"""
