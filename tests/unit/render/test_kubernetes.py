"""Job objects: what their schemas take, and what reaches a container through Kubernetes's own expansion."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.render.bundle import render
from dsforge.render.kubernetes import KINDS, Filling, fill, job_name, kind_of
from dsforge.render.kubernetes.fill import escaped
from tests.support.hostile import HOSTILE
from tests.support.kubernetes import expand
from tests.support.recipes import ROOT, loaded

NODES = {"cluster": {"nodes": 2, "gpus_per_node": 4}}
FULL = {
    "image": "registry/dsforge:1",
    "namespace": "team",
    "volumes": {"shared": "/mnt/shared", "data": "/data"},
    "resources": {"cpu": "8", "rdma/hca": "1"},
    "service_account": "trainer",
    "image_pull_secrets": ["registry"],
    "node_selector": {"nvidia.com/gpu.product": "H100"},
    "tolerations": ["nvidia.com/gpu", "team=nlp:NoSchedule"],
    "labels": {"kueue.x-k8s.io/queue-name": "gpus"},
    "annotations": {"k8s.v1.cni.cncf.io/networks": "roce"},
}


def _plan(kind: str, *changes: dict[str, Any], **launch: Any) -> Plan:
    section = {"launcher": "kubernetes", "env_from": ["HF_TOKEN"], "kubernetes": {**FULL, "kind": kind}}
    return make_plan(loaded(NODES, {"launch": {**section, **launch}}, *changes))


def _manifest(kind: str, *changes: dict[str, Any], **launch: Any) -> dict[str, Any]:
    return json.loads(render(_plan(kind, *changes, **launch)).files["job.json"])


def _templates(kind: str, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = manifest["spec"]
    if kind == "jobset":
        return {"ranks": spec["replicatedJobs"][0]["template"]["spec"]["template"]}
    roles = spec["pytorchReplicaSpecs" if kind == "pytorchjob" else "mpiReplicaSpecs"]
    return {role: one["template"] for role, one in roles.items()}


def _container(template: dict[str, Any]) -> dict[str, Any]:
    (container,) = template["spec"]["containers"]
    return container


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", [1, 2])
def test_schemas_take_it_rendered_and_filled(kind: str, nodes: int):
    rendered = _manifest(kind, {"cluster": {"nodes": nodes, "gpus_per_node": 8 // nodes}})
    filled = fill(rendered, Filling("dsf-x-1", {"DSFORGE_ROOT": "/mnt/shared"}, "/mnt/shared/run", "1234"))
    schema = YAML(typ="safe").load(ROOT / "tests" / "data" / "crds" / f"{kind}.yaml")
    for manifest in (rendered, filled):
        jsonschema.validate(manifest, schema)
        for template in _templates(kind, manifest).values():
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_the_schemas_refuse_what_no_controller_reads():
    manifest = _manifest("jobset")
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["nodes"] = 2
    schema = YAML(typ="safe").load(ROOT / "tests" / "data" / "crds" / "jobset.yaml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, schema)


def test_pods_have_what_the_recipe_asks_for():
    changes = ({"model": "gpt2"}, {"cluster": {"gpu": "h100-sxm-80gb"}}, {"parallel": {"tp": 1, "dp": 4}})
    manifest = _manifest("pytorchjob", *changes)
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    assert {role: one["replicas"] for role, one in roles.items()} == {"Master": 1, "Worker": 1}
    assert manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpus"}
    assert manifest["metadata"]["namespace"] == "team"
    assert roles["Master"] == roles["Worker"]
    template = roles["Worker"]["template"]
    assert template["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/networks": "roce"}
    asked = {"cpu": "8", "rdma/hca": "1", "nvidia.com/gpu": "4"}
    assert _container(template)["resources"] == {"limits": asked, "requests": asked}
    pod = template["spec"]
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "nlp", "effect": "NoSchedule"},
    ]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "H100"}
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("trainer", [{"name": "registry"}])
    claims = [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"][1:]]
    mounts = [one["mountPath"] for one in _container(template)["volumeMounts"]]
    assert (claims, mounts) == (["shared", "data"], ["/dev/shm", "/mnt/shared", "/data"])


@pytest.mark.parametrize(
    ("kind", "address", "node"),
    [("pytorchjob", "10.0.0.7", "RANK"), ("jobset", None, "JOB_COMPLETION_INDEX")],
)
def test_each_pod_starts_its_ranks_where_the_plan_has_them(kind: str, address: str | None, node: str):
    filled = fill(_manifest(kind), Filling("dsf-x-1", {"DSFORGE_ROOT": "/r $(A)"}, "/r/run", "1234"))
    *_, template = _templates(kind, filled).values()
    container = _container(template)
    environ: dict[str, str] = {}
    given = {node: "1"} | ({"MASTER_ADDR": address, "MASTER_PORT": "1234"} if address else {})
    for entry in container["env"]:
        if "value" in entry:
            environ[entry["name"]] = expand(entry["value"], environ)
    environ |= given
    assert environ["DSFORGE_ROOT"] == "/r $(A)"
    assert container["workingDir"] == "/r/run"
    words = [expand(word, environ) for word in container["command"]]
    assert words == [
        *("python3", "-u", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=4"),
        *(f"--master-addr={address or 'dsf-x-1-ranks-0-0.dsf-x-1'}", "--master-port=1234"),
        *("--max-restarts=0", "--node-rank=1", "--module", "dsforge.rank.main", "dsforge.train.main"),
    ]
    secret = container["env"][[one["name"] for one in container["env"]].index("HF_TOKEN")]
    assert secret["valueFrom"] == {"secretKeyRef": {"name": "dsf-x-1", "key": "HF_TOKEN"}}


def test_only_workers_of_mpi_have_gpus_and_only_its_launcher_has_variables():
    changes = ({"model": "gpt2"}, {"cluster": {"gpu": "h100-sxm-80gb"}}, {"parallel": {"tp": 1, "dp": 4}})
    roles = {
        role: _container(one) for role, one in _templates("mpijob", _manifest("mpijob", *changes)).items()
    }
    assert "resources" not in roles["Launcher"]
    assert roles["Worker"]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert "env" not in roles["Worker"]
    assert roles["Worker"]["command"] == ["/usr/sbin/sshd", "-De"]
    assert roles["Launcher"]["command"] == ["bash", "$(DSFORGE_BUNDLE)/mpirun.sh"]


@given(
    value=st.sampled_from(HOSTILE) | st.text("$()AB {}", max_size=12) | st.text(),
    name=st.sampled_from(["A", "DSFORGE_JOB", "B C"]),
)
def test_a_value_arrives_byte_for_byte(value: str, name: str):
    for text in (value, f"{value}$({name})", f"$${value}$"):
        assert expand(escaped(text), {"A": "x", "DSFORGE_JOB": "y", "B C": "z"}) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [("$(A)", "1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(B)", "$(B)"), ("$A $", "$A $"), ("$(A", "$(A")],
)
def test_the_expansion_is_that_of_kubernetes(text: str, seen: str):
    """As kubernetes/third_party/forked/golang/expansion does: what expands, and what does not."""
    assert expand(text, {"A": "1"}) == seen


@pytest.mark.parametrize(
    ("kind", "pod", "node"),
    [
        ("pytorchjob", "j-master-0", 0),
        ("pytorchjob", "j-worker-6", 7),
        ("jobset", "j-ranks-0-3-abcde", 3),
        ("mpijob", "j-worker-2", 2),
        ("mpijob", "j-launcher-abcde", None),
    ],
)
def test_a_pod_is_known_by_its_name(kind: str, pod: str, node: int | None):
    assert KINDS[kind].node_of("j", pod) == node


def test_names_fit_where_controllers_make_hosts_of_them():
    name = job_name("Ünser großes Modell_mit.Namen", "/runs/a/attempt-1")
    assert name.startswith("dsf-nser-gro-es-modell-")
    assert len(f"{name}-ranks-0-100000-abcde") <= 63
    assert name != job_name("Ünser großes Modell_mit.Namen", "/runs/a/attempt-2")
    assert kind_of(_manifest("mpijob")) is KINDS["mpijob"]


def test_a_path_with_a_dollar_reaches_the_pod_as_it_is():
    python = "/opt/$(MASTER_ADDR)/$$/python3"
    for kind in ("pytorchjob", "jobset"):
        manifest = _manifest(kind, kubernetes={**FULL, "kind": kind, "python": python})
        *_, template = _templates(kind, manifest).values()
        assert expand(_container(template)["command"][0], {"MASTER_ADDR": "10.0.0.1"}) == python
    launcher = _templates(
        "mpijob", _manifest("mpijob", kubernetes={**FULL, "kind": "mpijob", "python": python})
    )
    environ = {one["name"]: one["value"] for one in _container(launcher["Launcher"])["env"] if "value" in one}
    assert expand(environ["DSFORGE_PYTHON"], {"MASTER_ADDR": "10.0.0.1"}) == python
