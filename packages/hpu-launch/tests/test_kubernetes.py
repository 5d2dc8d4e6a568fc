"""Tests of the manifests against the published schemas: the models of Kubeflow's and Kubernetes' Python clients.

Kubeflow publishes models of the MPIJob v1, whose fields that are used here are those of v2beta1 as well.
"""

import importlib
import re
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hpu_launch.cli import main

training = pytest.importorskip("kubeflow.training")
kubernetes = pytest.importorskip("kubernetes")

_PLAIN = {"str": str, "int": int, "bool": bool}
_MACHINES = ("--nodes", "2", "--devices", "4", "--cpus", "6", "--image", "image:1", "--volume", "claim:/data")


def _problems(value: Any, kind: str, path: str = "") -> list[str]:
    """Return the fields of a manifest that a model does not have, or whose type differs."""
    if match := re.fullmatch(r"list\[(.+)\]", kind):
        return [problem for item in value for problem in _problems(item, match[1], f"{path}[]")]
    if match := re.fullmatch(r"dict\(str, (.+)\)", kind):
        return [problem for key, item in value.items() for problem in _problems(item, match[1], f"{path}.{key}")]
    if kind in _PLAIN:
        # Quantities of resources may be numbers.
        is_valid = isinstance(value, _PLAIN[kind]) or ("resources" in path and isinstance(value, int))
        return [] if is_valid else [f"{path} must be {kind}, got {value!r}"]
    model = getattr(training, kind, None) or getattr(kubernetes.client, kind)
    names = {name: attribute for attribute, name in model.attribute_map.items()}
    unknown = [f"{path}.{name} is unknown to {kind}" for name in value if name not in names]
    known = {name: model.openapi_types[names[name]] for name in value if name in names}
    return unknown + [problem for name, of in known.items() for problem in _problems(value[name], of, f"{path}.{name}")]


def _manifest(engine: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["--engine", engine, *_MACHINES, "train.py"])
    manifest: dict[str, Any] = yaml.safe_load(result.output)
    return manifest


@pytest.mark.parametrize(
    ("engine", "kind"), [("kubernetes", "KubeflowOrgV1PyTorchJob"), ("kubernetes-mpi", "KubeflowOrgV1MPIJob")]
)
def test_manifest_has_the_fields_of_its_schema(engine: str, kind: str) -> None:
    assert _problems(_manifest(engine), kind) == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("spec", "slots"), 1, ".spec.slots is unknown to KubeflowOrgV1MPIJobSpec"),
        (("spec", "slotsPerWorker"), "8", ".spec.slotsPerWorker must be int, got '8'"),
        (("metadata", "nam"), "x", ".metadata.nam is unknown to V1ObjectMeta"),
    ],
)
def test_wrong_field_is_found(path: tuple[str, str], value: object, problem: str) -> None:
    """The test above can fail."""
    manifest = _manifest("kubernetes-mpi")
    manifest[path[0]][path[1]] = value

    assert _problems(manifest, "KubeflowOrgV1MPIJob") == [problem]


def test_pytorchjob_names_its_container_as_the_operator_requires() -> None:
    constants = importlib.import_module("kubeflow.training.constants.constants")

    for replica in _manifest("kubernetes")["spec"]["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == constants.PYTORCHJOB_CONTAINER
