"""Jobs that Ray Train starts, by hpu-ray."""

import json

from hpu_launch.job import JobSpec, Launch, describe_command

_CLUSTER_PORT = 6379
_JOBS_PORT = 8265


def launch(job: JobSpec) -> Launch:
    """Return the command: for a running cluster if the job has an address, else for a cluster of this machine alone.

    Raises:
        ValueError: There are several machines and no address.
    """
    if job.nodes > 1 and job.address is None:
        raise ValueError("`--address` must be the address of the head of the Ray cluster for several machines")
    options = []
    notes = []
    if job.address is not None:
        resources = f"--resources='{json.dumps({'HPU': job.devices})}'"
        notes = [
            f"Start Ray first: `ray start --head --dashboard-host=0.0.0.0` on {job.address},",
            f"and `ray start --address={job.address}:{_CLUSTER_PORT}` on the others.",
            f"Where `ray status` shows no HPU, add `{resources}` to them.",
        ]
        if job.raise_open_files:
            notes.append(
                f"Before `ray start`, `{job.raise_open_files.removesuffix('; ')}`: rank 0 has sockets for all."
            )
        options += [
            (["ray", "job", "submit"], "runs the rest on the head of the cluster; needs `ray[default]`"),
            ([f"--address=http://{job.address}:{_JOBS_PORT}"], "the head's server of jobs"),
            *(
                [([f"--runtime-env-json={json.dumps({'env_vars': dict(job.environment)})}"], "variables of the ranks")]
                if job.environment
                else []
            ),
            (["--working-dir=."], "copies this folder to all machines; keep data and checkpoints elsewhere"),
            (["--"], "what follows runs there"),
        ]
    elif job.assignments:
        options.append((["env", *job.assignments], "variables of the ranks"))
    options += [
        ([job.interpreter, "-m", "hpu_ray"], "runs the script in each worker, with the variables of torchrun"),
        ([f"--num-workers={job.ranks}"], "one worker, which is a rank, for each card"),
    ]
    if job.cpus is not None:
        options.append(([f"--cpus-per-worker={job.cpus}"], "CPU cores of each rank"))
    options += [
        ([f"--max-failures={job.max_restarts}"], "how often all ranks start again after a failure, from `ckpt_path`"),
        ([f"--name={job.job_name}"], "name of the job"),
        (job.program, f"needs `devices={job.devices}, num_nodes={job.nodes}`"),
    ]
    status = f"ray job list --address=http://{job.address}:{_JOBS_PORT}" if job.address is not None else ""
    return describe_command(options, notes, runs_here=job.address is None, status=status)
