"""Check of the collectives between the ranks of a job: values and time.

- `measurement`: runs the collectives on each rank
- `findings`: finds the faults in the ranks' reports, on rank 0
- `check`: starts both, and the ranks on a single machine; it opens devices
"""
