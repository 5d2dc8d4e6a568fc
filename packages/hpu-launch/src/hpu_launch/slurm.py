"""Jobs that SLURM starts."""

import shlex

from hpu_launch.job import JobSpec, Launch


def launch(job: JobSpec) -> Launch:
    """Return the batch script."""
    options = [
        (f"--job-name={job.job_name}", ""),
        (f"--nodes={job.nodes}", "machines: `num_nodes` of the Trainer"),
        (f"--ntasks-per-node={job.devices}", "one task, which is a rank, for each card: `devices` of the Trainer"),
    ]
    options += [
        (f"--{name}={value}", "")
        for name, value in (("partition", job.partition), ("account", job.account), ("qos", job.qos))
        if value is not None
    ]
    if job.gres is not None:
        options.append((f"--gres={job.gres}", "cards of each machine, by the name in the cluster's configuration"))
    else:
        options += [
            ("--exclusive", "no other job on these machines, because SLURM alone does not isolate cards"),
            ("--mem=0", "all memory of these machines, of which SLURM may give a job a part otherwise"),
        ]
    if job.cpus is not None:
        options.append((f"--cpus-per-task={job.cpus}", "CPU cores of each rank, for the data loaders as well"))
    if job.time_limit is not None:
        options.append((f"--time={job.time_limit}", "time limit"))
    options += [
        ("--requeue", "a preempted job goes back to the queue"),
        ("--signal=SIGUSR1@90", "90 s before the end, Lightning saves a checkpoint and requeues the job"),
        ("--output=%x-%j.log", "name and number of the job"),
        ("--open-mode=append", "a job that was requeued keeps its earlier output"),
    ]
    width = max(len(text) for text, _ in options)
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH {text:<{width}}{'  # ' + comment if comment else ''}".rstrip() for text, comment in options]
    program = shlex.join([job.interpreter, *job.program])
    # From SLURM 22.05 on, srun does not take sbatch's `--cpus-per-task`.
    cpus = str(job.cpus) if job.cpus is not None else f'"$((SLURM_CPUS_ON_NODE / {job.devices}))"'
    lines += [
        "# The bridge writes logs there, and cannot open a card if it is not writable.",
        'export HABANA_LOGS="${HABANA_LOGS:-${TMPDIR:-/tmp}/habana-logs-$SLURM_JOB_ID}"',
        "# Packages of the home folder would hide those of the environment.",
        "export PYTHONNOUSERSITE=1",
        *(f"export {name}={shlex.quote(value)}" for name, value in job.environment.items()),
        *(
            [
                "# Rank 0 has sockets for all ranks. SLURM gives the tasks this limit by default.",
                job.raise_open_files.removesuffix("; "),
            ]
            if job.raise_open_files
            else []
        ),
        *(
            ["# Each rank and its data loaders get their share of the machine's cores; otherwise SLURM gives them one."]
            if job.cpus is None
            else []
        ),
        "# Lightning reads rank, world size, address and port from SLURM's variables. If a rank fails, all end.",
        f"srun --kill-on-bad-exit=1 --cpus-per-task={cpus} {program}",
    ]
    status = f"squeue --me --name={job.job_name}"
    return Launch("\n".join(lines), ["sbatch"], reads_text=True, status=status)
