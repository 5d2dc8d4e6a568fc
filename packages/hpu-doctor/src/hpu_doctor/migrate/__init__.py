"""CUDA idioms in Python files, with what to write on Gaudi instead.

- `rules`: the idioms, as tables
- `finder`: the search for them in one file, by its syntax tree
- `program`: the files of a script, and the change of those that are safe to change

Nothing of the files is run or imported. The replacements are those of Intel's table of migration APIs, and of these
packages; docs/start/from-cuda.md explains them.
"""
