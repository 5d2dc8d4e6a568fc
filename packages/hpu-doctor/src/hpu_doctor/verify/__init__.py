"""Register of assumptions about cards, and the command `hpu-doctor verify` that tries them on this machine.

- `assumption`: an entry of the register, and the values that it expects
- `register`: the entries, by subject
- `program`: the process that runs the program of one entry
- `runner`: runs the entries that apply to this machine, one process at a time
- `report`: the report, and its folder with JSON and text
- `command`: chooses entries, runs them and writes the report
"""
