"""Jobs that torchrun starts."""

from hpu_launch.job import JobSpec, Launch, describe_command


def launch(job: JobSpec) -> Launch:
    """Return the command of each machine.

    Raises:
        ValueError: There are several machines and no address.
    """
    options = [(job.agent, "the agent of a machine: it starts the ranks, and ends all of them if one fails")]
    notes = []
    if job.nodes == 1:
        options.append((["--standalone"], "one machine: the agent chooses a free port"))
    else:
        if job.address is None:
            raise ValueError("`--address` must be the address of the first machine for torchrun on several machines")
        notes.append(f"Run this on each of the {job.nodes} machines. They wait for each other.")
        count = ([f"--nnodes={job.nodes}"], "machines")
        if job.min_nodes is not None:
            count = ([f"--nnodes={job.min_nodes}:{job.nodes}"], "machines, from the fewest to the most")
            # DynamicRendezvousHandler.next_rendezvous publishes the shared store's address once.
            disabled = ["env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"]
            options.insert(0, (disabled, "without it, late joiners hang (torch 2.13)"))
        endpoint = f"--rdzv-endpoint={job.address}:{job.port}"
        options += [
            count,
            (["--rdzv-backend=c10d"], "the agents agree on the ranks by torch's TCPStore"),
            ([endpoint], "the first machine, which serves the store; no other port is needed"),
            ([f"--rdzv-id={job.job_name}"], "the same on all machines"),
        ]
    if job.raise_open_files:
        shell = ["bash", "-c", f'{job.raise_open_files}exec "$@"', "bash"]
        options.insert(0, (shell, "raises the limit of open files: rank 0 has sockets for all ranks"))
    if job.assignments:
        options.insert(0, (["env", *job.assignments], "variables of the ranks"))
    num_nodes = str(job.nodes) if job.min_nodes is None else 'int(os.environ["GROUP_WORLD_SIZE"])'
    options += [
        ([f"--nproc-per-node={job.devices}"], "one rank for each card"),
        ([f"--max-restarts={job.max_restarts}"], "how often all ranks start again after a failure, from `ckpt_path`"),
        (job.program, f"needs `devices={job.devices}, num_nodes={num_nodes}`"),
    ]
    return describe_command(options, notes, runs_here=True)
