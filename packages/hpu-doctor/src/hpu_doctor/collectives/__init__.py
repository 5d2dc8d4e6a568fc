"""Check of the collectives between the ranks of a job: values and time.

- `measurement`: runs the collectives on each rank
- `issues`: finds the faults in the ranks' reports, on rank 0
- `check`: does both, in a process that is a rank of the job; it opens the card
"""
