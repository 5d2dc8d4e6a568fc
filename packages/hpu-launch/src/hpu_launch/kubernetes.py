"""Jobs that Kubeflow's operators start on Kubernetes.

A pod is that of Intel's Kubernetes quick start, which has 95000Mi of huge pages and 409Gi of memory for 8 cards; fewer
cards get their share.
"""

import json
import math
import shlex

from hpu_launch.job import JobSpec, Launch
from hpu_launch.mpirun import SET_RANKS, binding

_PAGES_MI = 95000 / 8
_MEMORY_GI = 409 / 8
# The image's own folder may not be writable, and then no card opens.
_LOGS = "/tmp/habana_logs"  # noqa: S108 - of the pod alone.


def launch_with_torchrun(job: JobSpec) -> Launch:
    """Return the manifest of a PyTorchJob, of Kubeflow's training operator v1.

    Raises:
        ValueError: There is no image, or no volume for restarts.
    """
    # The operator sets RANK, which is the number of the pod, and MASTER_ADDR and MASTER_PORT. It restarts the pods: an
    # agent that restarted its own ranks would multiply the number of restarts, and leave out the other machines.
    agent = (
        f"{job.raise_open_files}exec {shlex.join(job.agent)} --nnodes={job.nodes} --nproc-per-node={job.devices} "
        '--max-restarts=0 --node-rank="$RANK" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"'
    )
    command = ["sh", "-c", agent, "sh", *job.program]
    replicas = [("Master", 1, "the first machine, which serves the rendezvous")]
    if job.nodes > 1:
        replicas.append(("Worker", job.nodes - 1, "the other machines"))
    lines = [
        *_run_policy(f"{job.max_restarts * job.nodes}  # restarts of pods; a failure restarts all of them"),
        "  pytorchReplicaSpecs:",
    ]
    restart = "Never  # a pod that fails ends the job; `--max-restarts` restarts it"
    if job.max_restarts:
        restart = "OnFailure  # a pod starts again, and the script resumes from its `ckpt_path`"
    for kind, count, comment in replicas:
        lines += [
            f"    {kind}:  # {comment}",
            f"      replicas: {count}",
            f"      restartPolicy: {restart}",
            "      template:",
            *_template(job, "pytorch", command, port=True),
        ]
    return _make_launch(job, "kubeflow.org/v1", "PyTorchJob", lines)


def launch_with_mpirun(job: JobSpec) -> Launch:
    """Return the manifest of an MPIJob, of Kubeflow's MPI operator v2.

    Raises:
        ValueError: There is no image, or no volume for restarts.
    """
    # The operator writes the host file of mpirun. Its shell passes its own variables to no other pod.
    variables = "".join(f"-x {shlex.quote(each)} " for each in job.assignments)
    placement = " ".join(word for words, _ in binding(job) for word in words)
    mpirun = (
        f"exec mpirun --allow-run-as-root -np {job.ranks} {placement} "
        '-x MASTER_ADDR="$(head -n 1 /etc/mpi/hostfile | cut -d " " -f 1 | cut -d : -f 1)" '
        f'-x MASTER_PORT={job.port} -x HABANA_LOGS={_LOGS} {variables}"$@"'
    )
    rank = ["bash", "-c", job.raise_open_files + SET_RANKS, "bash", job.interpreter, *job.program]
    command = ["sh", "-c", mpirun, "sh", *rank]
    lines = [
        f"  slotsPerWorker: {job.devices}  # ranks of a machine, one for each card",
        *_run_policy(f"{job.max_restarts}  # how often the launcher starts again after a failure"),
        "  mpiReplicaSpecs:",
        "    Launcher:  # runs mpirun, without a card",
        "      replicas: 1",
        "      template:",
        "        spec:",
        "          containers:",
        "            - name: launcher",
        f"              image: {_image(job)}",
        f"              command: {json.dumps(command)}",
        "    Worker:  # the machines",
        f"      replicas: {job.nodes}",
        "      template:",
        *_template(job, "worker"),
    ]
    return _make_launch(job, "kubeflow.org/v2beta1", "MPIJob", lines)


def _run_policy(restarts: str) -> list[str]:
    return [
        "  runPolicy:",
        f"    backoffLimit: {restarts}",
        "    cleanPodPolicy: Running  # a job that has ended leaves no pod that holds cards",
    ]


def _image(job: JobSpec) -> str:
    if job.image is None:
        raise ValueError("`--image` must be a container image with SynapseAI and the script, for Kubernetes")
    return json.dumps(job.image)


def _template(job: JobSpec, name: str, command: list[str] | None = None, *, port: bool = False) -> list[str]:
    """Return the lines of a pod's template.

    Args:
        job: The job.
        name: Name of the container, which the operator may require.
        command: Command of the container; None for that of the image.
        port: Whether to declare the port of the rendezvous.
    """
    if job.max_restarts and job.volume is None:
        raise ValueError(
            "`--volume` must be CLAIM:PATH with `--max-restarts`: a restarted pod has no other file than those of its "
            "image, and the script resumes from a checkpoint"
        )
    volume_name, _, path = (job.volume or "").partition(":")
    # In quotes: "null", "yes" and "1e3" are names, too.
    source = f"{{name: checkpoints, persistentVolumeClaim: {{claimName: {json.dumps(volume_name)}}}}}"
    path_in_pod = f"{{name: checkpoints, mountPath: {json.dumps(path)}}}"
    resources = [
        f"habana.ai/gaudi: {job.devices}",
        f"hugepages-2Mi: {math.ceil(_PAGES_MI * job.devices)}Mi",
        f"memory: {job.memory or f'{math.ceil(_MEMORY_GI * job.devices)}Gi'}",
        *([f"cpu: {job.cpus * job.devices}"] if job.cpus is not None else []),
    ]
    quoted = {json.dumps(name): value for name, value in job.environment.items()}
    selector = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in job.node_selector.items())
    lines = [
        "spec:",
        *([f"  nodeSelector: {{{selector}}}"] if selector else []),
        "  hostIPC: true  # as in Intel's Kubernetes quick start",
        "  containers:",
        f"    - name: {name}",
        f"      image: {_image(job)}",
        *([f"      command: {json.dumps(command)}"] if command is not None else []),
        *(
            ["      ports:", f"        - {{name: pytorchjob-port, containerPort: {job.port}}}  # the rendezvous's"]
            if port
            else []
        ),
        "      env:",
        f"        - {{name: HABANA_LOGS, value: {_LOGS}}}  # a card opens only if the bridge can write its logs",
        *(f"        - {{name: {name}, value: {json.dumps(value)}}}" for name, value in quoted.items()),
        *(["      volumeMounts:", f"        - {path_in_pod}  # for `ckpt_path`"] if volume_name else []),
        "      securityContext:",
        '        capabilities: {add: ["SYS_NICE"]}  # as hostIPC',
        "      resources:",
        "        requests:  # huge pages and cards must equal the limits",
        *(f"          {line}" for line in resources),
        "        limits:",
        *(f"          {line}" for line in resources),
        *(["  volumes:", f"    - {source}  # of all machines"] if volume_name else []),
    ]
    return [f"        {line}" for line in lines]


def _make_launch(job: JobSpec, version: str, kind: str, spec: list[str]) -> Launch:
    lines = [f"apiVersion: {version}", f"kind: {kind}", "metadata:", f"  name: {json.dumps(job.job_name)}"]
    status = f"kubectl describe {kind.lower()}/{job.job_name}"
    if job.namespace is not None:
        lines.append(f"  namespace: {json.dumps(job.namespace)}")
        status += f" --namespace={job.namespace}"
    text = "\n".join([*lines, "spec:", *spec])
    return Launch(text, ["kubectl", "apply", "-f", "-"], reads_text=True, status=status)
