"""Jobs that Open MPI starts, 4.1 or 5."""

from hpu_launch.job import JobSpec, Launch, describe_command

# Lightning's MPIEnvironment needs mpi4py. These variables of its default environment need nothing. RANK and WORLD_SIZE
# are left out: in a pod of Kubernetes, Lightning would take them for Kubeflow's, with one rank per machine.
SET_RANKS = (
    "export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK "
    "NODE_RANK=$((OMPI_COMM_WORLD_RANK / OMPI_COMM_WORLD_LOCAL_SIZE)); "
    'exec "$@"'
)


def binding(job: JobSpec) -> list[tuple[list[str], str]]:
    """Return the options that place ranks on machines and cores, with a comment for each."""
    if job.cpus is None:
        return [
            (["--map-by", f"ppr:{job.devices}:node"], "ranks of a machine are consecutive"),
            (["--bind-to", "none"], "otherwise a rank and its data loaders may share one core; `--cpus` binds"),
        ]
    return [
        (["--map-by", f"ppr:{job.devices}:node:PE={job.cpus}"], "ranks of a machine are consecutive; cores of each"),
        (["--bind-to", "core"], "a rank and its data loaders stay on these cores"),
        (["--rank-by", "slot"], "Open MPI 5 has no `--rank-by core`"),
    ]


def launch(job: JobSpec) -> Launch:
    """Return the command, which is run on one machine.

    Raises:
        ValueError: There are not as many hosts as machines.
    """
    if (job.nodes > 1 or job.hosts) and len(job.hosts) != job.nodes:
        raise ValueError(
            f"`--hosts` must have as many host names as `--nodes`, {job.nodes}, got {len(job.hosts)}; the first one "
            "serves the rendezvous"
        )
    address = job.address or (job.hosts[0] if job.hosts else "127.0.0.1")
    options = [
        (["mpirun"], "starts the ranks on all machines, by ssh, and ends all of them if one fails"),
        (["--allow-run-as-root"], "mpirun refuses root otherwise, as which many containers run"),
        (["-np", str(job.ranks)], "ranks: machines times cards"),
    ]
    if job.hosts:
        hosts = ",".join(f"{host}:{job.devices}" for host in job.hosts)
        options.append((["--host", hosts], "host names with the number of ranks"))
    options += [
        *binding(job),
        (["-x", f"MASTER_ADDR={address}"], "the first machine, which serves the rendezvous"),
        (["-x", f"MASTER_PORT={job.port}"], "its port"),
        *([([word for each in job.assignments for word in ("-x", each)], "variables")] if job.assignments else []),
        (
            ["bash", "-c", job.raise_open_files + SET_RANKS, "bash"],
            "Lightning's names of Open MPI's variables; no mpi4py is needed",
        ),
        ([job.interpreter, *job.program], f"needs `devices={job.devices}, num_nodes={job.nodes}`"),
    ]
    return describe_command(options, [], runs_here=not job.hosts)
