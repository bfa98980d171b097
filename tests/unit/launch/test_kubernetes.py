"""A job object through a real API server's answers: taken, followed, told of, deleted, refused."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.kubernetes import job
from dsforge.launch.kubernetes.check import ask_cluster, check_request
from dsforge.launch.launchers.kubernetes import LAUNCHER, killed
from dsforge.launch.types import LaunchRequest
from dsforge.plan.resolve import make_plan
from dsforge.render.bundle import render
from tests.support.kubernetes import NAMESPACE, Answer, ApiServer, free_port, status
from tests.support.recipes import loaded

SECRET = "s3cret $(A)"
NODES = {"cluster": {"nodes": 2, "gpus_per_node": 4}}


@dataclass
class Scripted(ApiServer):
    """Pods that are at the next of `scenes` each time they are asked for, and stay at the last one."""

    scenes: tuple[dict[str, Any], ...] = ()
    looked: int = 0
    endings: tuple[str | None, ...] = ()

    def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path.endswith("/pods"):
            (name,) = self.jobs or ("none",)
            at = min(self.looked, len(self.scenes) - 1)
            self.looked += 1
            self.pods = {
                key: {
                    "metadata": {
                        "name": f"{name}-{key}",
                        "labels": {"dsforge/job": name},
                        **one.get("more", {}),
                    },
                    "status": one["status"],
                }
                for key, one in self.scenes[at].items()
            }
            ending = self.endings[at] if at < len(self.endings) else None
            for one in self.jobs.values():
                one["status"] = {"conditions": [{"type": ending, "status": "True"}]} if ending else {}
        return super()._do(method, path, query, body)


def at(phase: str, **more: Any) -> dict[str, Any]:
    return {"status": {"phase": phase, **more}}


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return at("Succeeded" if code == 0 else "Failed", containerStatuses=[{"state": state}])


def waiting(reason: str) -> dict[str, Any]:
    return at("Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": "no such"}}}])


RUNNING = {"master-0": at("Running"), "worker-0": at("Running")}
PENDING = {
    "master-0": at("Running"),
    "worker-0": at(
        "Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    ),
}
DONE = {"master-0": ended(0), "worker-0": ended(0)}


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(job, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(job, "_TICK_SECONDS", 0.01)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def request_in(folder: Path, **options: Any) -> LaunchRequest:
    section = {"image": "a", "volumes": {"shared": str(folder)}, **options}
    launch = {"launcher": "kubernetes", "env_from": ["HF_TOKEN"], "kubernetes": section}
    plan = make_plan(loaded(NODES, {"launch": launch}))
    return LaunchRequest(
        plan=plan,
        bundle=render(plan),
        runs_root=folder / "runs",
        recipe_root=folder,
        recipe_path=str(folder / "small.yaml"),
        recipe_text="",
        command=("dsforge", "launch"),
        environ=dict(os.environ),
        corpus=str(folder / "corpus"),
    )


@pytest.fixture
def follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Return what submits a small job to a server and follows it: its code and what it said."""

    def run(server: ApiServer, **options: Any) -> tuple[int, str]:
        request = request_in(tmp_path, **options)
        request.bundle.write(tmp_path / "bundle")
        (tmp_path / "attempt-1").mkdir(exist_ok=True)
        monkeypatch.setenv("HF_TOKEN", SECRET)
        with server.serving(tmp_path) as kubeconfig:
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
            words = ("--manifest", tmp_path / "bundle" / "job.json", "--attempt", tmp_path / "attempt-1")
            code = job.main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_it_is_followed_to_its_end_and_deleted(follow: Callable[..., tuple[int, str]], tmp_path: Path):
    server = Scripted(scenes=(PENDING, RUNNING, DONE), endings=(None, None, "Succeeded"))
    code, said = follow(server)
    assert code == 0, said
    lines = said.splitlines()
    name = server.asked("POST", "pytorchjobs")[0][3]["metadata"]["name"]
    assert lines[0] == f"dsforge: PyTorchJob {NAMESPACE}/{name} was created on http://127.0.0.1:{server.port}"
    assert f"dsforge: {name}-worker-0 is Pending: Unschedulable" in lines
    assert lines.index(f"dsforge: {name}-worker-0 is Running") < lines.index(job.READY)
    assert lines[-1] == "dsforge: the job object is deleted"
    ((_, path, query, _),) = server.asked("DELETE", "/")
    assert path == f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs/{name}"
    assert query == {"propagationPolicy": "Foreground"}
    created, secret = [one for one in server.requests if one[0] == "POST"]
    assert secret[1] == f"/api/v1/namespaces/{NAMESPACE}/secrets"
    assert base64.b64decode(secret[3]["data"]["HF_TOKEN"]).decode() == SECRET
    assert secret[3]["metadata"]["ownerReferences"] == [
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": "uid-1"}
    ]
    others = [one for one in server.requests if one is not secret]
    assert "s3cret" not in json.dumps(others) + said
    assert base64.b64encode(SECRET.encode()).decode() not in json.dumps(others) + said
    environ = created[3]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["env"]
    attempt = str(tmp_path / "attempt-1")
    assert {"name": "DSFORGE_ATTEMPT_DIR", "value": attempt} in environ


@pytest.mark.parametrize(
    ("scene", "ending", "line"),
    [
        ({**RUNNING, "worker-0": ended(1)}, "Failed", "worker-0 is Failed: Error: exit code 1"),
        (
            {**RUNNING, "worker-0": ended(137, "OOMKilled")},
            "Failed",
            "dsforge: ranks 4 to 7 were killed: OOMKilled: exit code 137",
        ),
        (
            {**RUNNING, "worker-0": at("Failed", reason="Evicted", message="low on x")},
            None,
            "dsforge: pod-1 is lost: Evicted: low on x",
        ),
        (
            {
                **RUNNING,
                "worker-0": at(
                    "Running",
                    conditions=[
                        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                    ],
                ),
            },
            None,
            "dsforge: pod-1 is lost: PreemptionByScheduler",
        ),
        ({"master-0": at("Running")}, None, "dsforge: pod-1 is lost: it was deleted"),
        (
            {**RUNNING, "worker-0": {**at("Running"), "more": {"deletionTimestamp": "now"}}},
            None,
            "dsforge: pod-1 is lost: it was deleted",
        ),
    ],
)
def test_what_ended_a_pod_is_told(
    follow: Callable[..., tuple[int, str]], scene: dict[str, Any], ending: str | None, line: str
):
    server = Scripted(scenes=(RUNNING, scene, DONE), endings=(None, ending, "Failed"))
    code, said = follow(server)
    assert code == 4
    assert line in said
    lost = [one for one in said.splitlines() if LAUNCHER.lost is not None and LAUNCHER.lost.search(one)]
    assert len(lost) == int(" is lost: " in line)


def test_pods_that_go_because_another_failed_are_not_lost(follow: Callable[..., tuple[int, str]]):
    after = {"master-0": ended(1)}
    code, said = follow(Scripted(scenes=(RUNNING, after, after), endings=(None, None, "Failed")))
    assert code == 4
    assert " is lost: " not in said


@pytest.mark.parametrize("foreground", [True, False])
def test_a_job_object_that_somebody_deletes_has_lost_no_pods(
    follow: Callable[..., tuple[int, str]], foreground: bool
):
    class Deleted(Scripted):
        def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
            answer = super()._do(method, path, query, body)
            if method == "GET" and self.looked >= 2 and "/pytorchjobs/" in path:
                if not foreground or self.looked > 3:
                    return 404, status(404, "NotFound", "gone")
                answer[1]["metadata"]["deletionTimestamp"] = "now"
            return answer

    leaving = {name: {**one, "more": {"deletionTimestamp": "now"}} for name, one in RUNNING.items()}
    code, said = follow(Deleted(scenes=(RUNNING, leaving, leaving, {})))
    assert code == 4
    assert "dsforge: somebody deletes the job object" in said
    assert " is lost: " not in said


def test_workers_of_mpi_that_go_when_its_launcher_has_ended_well_are_not_lost(
    follow: Callable[..., tuple[int, str]],
):
    working = {"launcher-x": at("Running"), "worker-0": at("Running"), "worker-1": at("Running")}
    done = {"launcher-x": ended(0)}
    code, said = follow(Scripted(scenes=(working, done), endings=(None, "Succeeded")), kind="mpijob")
    assert code == 0, said
    assert job.READY in said
    assert " is lost: " not in said


def test_the_last_words_of_a_failed_pod_are_kept(follow: Callable[..., tuple[int, str]]):
    server = Scripted(scenes=({**DONE, "master-0": ended(1)},), endings=("Failed",))
    server.answers = [Answer("GET", "master-0/log$", 200, "No module named dsforge\n")]
    _, said = follow(server)
    assert "-master-0: No module named dsforge\n" in said


def test_an_image_that_is_not_there_ends_it(
    follow: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job, "_HOPELESS_SECONDS", 0.1)
    code, said = follow(Scripted(scenes=({**RUNNING, "worker-0": waiting("ImagePullBackOff")},)))
    assert code == 3
    assert "error[DSF708]: " in said
    assert "-worker-0 cannot start: ImagePullBackOff: no such" in said
    assert "dsforge: the job object is deleted\n" in said


def test_a_server_that_is_away_for_a_while_ends_nothing(follow: Callable[..., tuple[int, str]]):
    class Away(Scripted):
        def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
            if path.endswith("/pods") and 1 < self.looked < 4:
                self.looked += 1
                return 503, status(503, "ServiceUnavailable", "try again")
            return super().answer(method, path, query, body)

    server = Away(scenes=(RUNNING, RUNNING, RUNNING, RUNNING, DONE), endings=(*[None] * 4, "Succeeded"))
    code, said = follow(server)
    assert code == 0, said
    assert said.count("answers 503: try again") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_by_hand_a_signal_asks_the_ranks_and_a_second_one_ends_all(
    follow: Callable[..., tuple[int, str]], tmp_path: Path, number: int
):
    class Told(Scripted):
        def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
            if path.endswith("/pods") and self.looked in (2, 5):
                threading.Thread(target=os.kill, args=(os.getpid(), number)).start()
            return super()._do(method, path, query, body)

    server = Told(scenes=(RUNNING,))
    code, _ = follow(server)
    assert code == 4
    assert server.jobs == {}
    asked = tmp_path / "attempt-1" / "stop"
    assert asked.exists() is (number == signal.SIGINT)


def test_without_its_supervisor_it_is_deleted(
    follow: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "lease").write_text("free        \n")
    monkeypatch.setenv("DSFORGE_LEASE", str(tmp_path / "lease"))
    server = Scripted(scenes=(RUNNING,))
    assert follow(server)[0] == 4
    assert server.asked("DELETE", "pytorchjobs")


def test_a_job_without_its_secret_does_not_stay(follow: Callable[..., tuple[int, str]]):
    server = Scripted(scenes=(RUNNING,))
    server.answers = [Answer("POST", "/secrets$", 403, status(403, "Forbidden", "no secrets for you"))]
    code, said = follow(server)
    assert code == 3
    assert "error[DSF704]: you may not create secrets in namespace team" in said
    assert server.jobs == {}


NO_NAMESPACE = status(404, "NotFound", 'namespaces "team" not found', "namespaces")


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Answer("POST", "jobs$", 403, status(403, "Forbidden", "not you")), "DSF704", "not you"),
        (Answer("POST", "jobs$", 404, NO_NAMESPACE), "DSF705", "create the namespace"),
        (Answer("POST", "jobs$", 404, "404 page not found\n"), "DSF705", "install the controller"),
        (Answer("POST", "jobs$", 409, status(409, "AlreadyExists", "twice")), "DSF706", "twice"),
        (Answer("POST", "jobs$", 422, status(422, "Invalid", "spec.x: bad")), "DSF706", "spec.x: bad"),
        (Answer("POST", "jobs$", 500, "oh no"), "DSF702", "answers 500: oh no"),
        (Answer("POST", "secrets$", 403, status(403, "Forbidden", "no")), "DSF704", "create secrets"),
    ],
)
def test_what_the_server_refuses_is_an_error_before_anything_is_made(
    answer: Answer, code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    server = ApiServer(answers=[answer])
    with server.serving(tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        with pytest.raises(DsforgeError) as fault:
            ask_cluster(request_in(tmp_path))
    assert fault.value.code == code
    assert words in f"{fault.value.message} {fault.value.hint}"
    assert (server.jobs, server.secrets) == ({}, {})
    assert {one[2].get("dryRun") for one in server.requests} == {"All"}


def test_another_token_and_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    server = ApiServer()
    with server.serving(tmp_path):
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path, token="old")))
        with pytest.raises(DsforgeError) as fault:
            ask_cluster(request_in(tmp_path))
    assert fault.value.code == "DSF703"
    server.port = free_port()
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
    with pytest.raises(DsforgeError) as fault:
        ask_cluster(request_in(tmp_path))
    assert fault.value.code == "DSF702"
    assert "Connection refused" in fault.value.message


def test_no_configuration_and_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(DsforgeError) as fault:
        ask_cluster(request_in(tmp_path))
    assert fault.value.code == "DSF702"
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(DsforgeError) as fault:
        ask_cluster(request_in(tmp_path))
    assert (fault.value.code, fault.value.hint) == ("DSF701", "pip install 'dsforge[kubernetes]'")


def test_every_path_of_the_run_lies_on_a_volume(tmp_path: Path):
    request = request_in(tmp_path)
    check_request(request)
    for change in (
        {"runs_root": Path("/elsewhere/runs")},
        {"recipe_root": tmp_path / ".." / "other"},
        {"corpus": "/root/.cache/corpus"},
    ):
        with pytest.raises(DsforgeError) as fault:
            check_request(replace(request, **change))
        assert fault.value.code == "DSF707"


def test_the_ranks_of_which_it_is_said_that_they_were_killed():
    assert killed("dsforge: ranks 4 to 7 were killed: OOMKilled") == [4, 5, 6, 7]
    assert killed("x-worker-0: dsforge: ranks 4 to 7 were killed: OOMKilled") == []


_CONTEXT = (
    "current-context: c\n"
    "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    "users: [{name: u, user: {}}]\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a: [", "expected the node content"),
        ("[1, 2]", "list indices"),
        ("words", "item assignment"),
        ("", "file is empty"),
        ("\x00", "special characters"),
        (f"{_CONTEXT}clusters: [{{name: k, cluster: {{}}}}]\n", "no server https://..., but ''"),
        (f"{_CONTEXT}clusters: [{{name: k, cluster: {{server: 5}}}}]\n", "'int' object"),
        (f"{_CONTEXT}clusters: [{{name: k, cluster: {{server: 'http:///x'}}}}]\n", "but 'http:///x'"),
        (f"{_CONTEXT}clusters: 5\n", "is not iterable"),
    ],
)
def test_a_configuration_of_another_form_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
):
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(DsforgeError) as fault:
        ask_cluster(request_in(tmp_path))
    assert (fault.value.code, fault.value.exit_code) == ("DSF702", 3)
    assert fault.value.message.startswith(f"{tmp_path / 'config'} is no usable configuration of a cluster: ")
    assert words in fault.value.message
    assert "\n" not in fault.value.message
