"""An API server that remembers what it is asked, and a kubelet whose pods are processes here."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.recipes import ROOT

TOKEN = "test-token"
NAMESPACE = "team"
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: me, namespace: {namespace}}}}}]
users: [{{name: me, user: {{token: {token}}}}}]
"""
APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def expand(text: str, known: Mapping[str, str]) -> str:
    """Return a text as Kubernetes gives it to a container: `$$` is `$`, `$(NAME)` a value if there is one."""
    made, rest = "", text
    while rest:
        before, dollar, rest = rest.partition("$")
        made += before
        if not dollar:
            break
        if rest.startswith("$"):
            made, rest = made + "$", rest[1:]
        elif rest.startswith("(") and ")" in rest:
            name, _, rest = rest[1:].partition(")")
            made += known.get(name, f"$({name})")
        else:
            made += "$"
    return made


@dataclass
class Answer:
    """What the server says to requests whose method and path fit, instead of doing them."""

    method: str
    path: str
    status: int
    body: Any


@dataclass
class ApiServer:
    """One server. `requests`: (method, path, query, body) in order; the others: what there is."""

    port: int = 0
    requests: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def started(self, job: dict[str, Any]) -> None:
        """Do what a controller does when a job object is there; this one does nothing."""

    def deleted(self, job: dict[str, Any]) -> None:
        """Do what comes before a job object is gone."""

    def refresh(self) -> None:
        """Bring what there is up to date; called before each answer."""

    def asked(self, method: str, part: str) -> list[tuple[str, str, dict[str, str], Any]]:
        return [one for one in self.requests if one[0] == method and part in one[1]]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        with self.lock:
            self.requests.append((method, path, query, body))
            for one in self.answers:
                if one.method == method and re.search(one.path, path):
                    return one.status, one.body
            self.refresh()
            return self._do(method, path, query, body)

    def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        name = path.rpartition("/")[2]
        if method == "POST":
            kept = self.secrets if path.endswith("/secrets") else self.jobs
            if query.get("dryRun") == "All":
                return 201, body
            if body["metadata"]["name"] in kept:
                return 409, _status(409, "AlreadyExists", f"{body['metadata']['name']} already exists")
            body["metadata"]["uid"] = f"uid-{len(self.requests)}"
            kept[body["metadata"]["name"]] = body
            if kept is self.jobs:
                self.started(body)
            return 201, body
        if path.endswith("/log"):
            return 200, self.logs.get(path.split("/")[-2], "")
        if path.endswith("/pods"):
            wanted = dict([query["labelSelector"].split("=")])
            fitting = [
                pod for pod in self.pods.values() if wanted.items() <= pod["metadata"]["labels"].items()
            ]
            return 200, {"kind": "PodList", "items": fitting}
        if name not in self.jobs:
            return 404, _status(404, "NotFound", f"{name} not found")
        if method == "DELETE":
            job = self.jobs.pop(name)
            self.deleted(job)
            owned = job["metadata"]["uid"]
            for secret in [*self.secrets.values()]:
                if any(one["uid"] == owned for one in secret["metadata"].get("ownerReferences", ())):
                    del self.secrets[secret["metadata"]["name"]]
            return 200, {"status": "Success"}
        return 200, self.jobs[name]

    @contextmanager
    def serving(self, folder: Path) -> Iterator[Path]:
        """Serve, and yield the kubeconfig that leads here."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                url = urlsplit(self.path)
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, said = 401, _status(401, "Unauthorized", "Unauthorized")
                else:
                    query = {name: values[0] for name, values in parse_qs(url.query).items()}
                    status, said = api.answer(self.command, url.path, query, body)
                data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header(
                    "Content-Type", "text/plain" if isinstance(said, str) else "application/json"
                )
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _reply

            def log_message(self, *words: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self.kubeconfig(folder)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def kubeconfig(self, folder: Path, token: str = TOKEN) -> Path:
        file = folder / "kubeconfig"
        file.write_text(KUBECONFIG.format(port=self.port, namespace=NAMESPACE, token=token))
        return file


def _status(code: int, reason: str, message: str, kind: str = "") -> dict[str, Any]:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": {"kind": kind},
    }


status = _status


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def can_be_apart() -> bool:
    """Tell whether processes can be given process ids of their own here, as those of a pod have."""
    return subprocess.run([*APART, "true"], capture_output=True, check=False).returncode == 0


@dataclass
class Kubelet(ApiServer):
    """A server whose pods are processes, each in a group, and if it can with process ids, of its own.

    `variables`: what the image would set.
    """

    variables: dict[str, str] = field(default_factory=dict)
    folder: Path = Path()
    apart: bool = field(default_factory=can_be_apart)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    evicted: set[str] = field(default_factory=set)

    def started(self, job: dict[str, Any]) -> None:
        name, port = job["metadata"]["name"], str(free_port())
        for pod, template, given in _pods(job, port):
            names = {f"{name}-ranks-0-0.{name}": "127.0.0.1"}  # what the cluster's DNS would say
            container = template["spec"]["containers"][0]
            environ: dict[str, str] = {}
            for entry in [*container["env"], *({"name": key, "value": one} for key, one in given.items())]:
                if "value" in entry:
                    environ[entry["name"]] = expand(entry["value"], environ)
                else:
                    wanted = entry["valueFrom"]["secretKeyRef"]
                    environ[entry["name"]] = (wanted["name"], wanted["key"])  # type: ignore[assignment]  # until `_start` looks it up
            threading.Thread(
                target=self._start, args=(pod, template, container, environ, names), daemon=True
            ).start()
            labels = template["metadata"]["labels"]
            self.pods[pod] = {
                "metadata": {"name": pod, "labels": labels},
                "status": {"phase": "Pending"},
            }

    def _start(self, pod: str, template: Any, container: Any, environ: Any, names: dict[str, str]) -> None:
        wanted = {one[0] for one in environ.values() if isinstance(one, tuple)}
        while not wanted <= self.secrets.keys():  # as a kubelet: without its secret no container starts
            threading.Event().wait(0.05)
        for key, one in environ.items():
            if isinstance(one, tuple):
                environ[key] = base64.b64decode(self.secrets[one[0]]["data"][one[1]]).decode()
            elif one in names:
                environ[key] = names[one]
        command = [expand(word, environ) for word in container["command"]]
        log = (self.folder / f"{pod}.log").open("ab")
        with self.lock, log:
            if pod not in self.pods:
                return
            self.processes[pod] = subprocess.Popen(
                [*(APART if self.apart else ()), *command],
                env={**self.variables, **environ},
                cwd=container["workingDir"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self.pods[pod]["status"] = {"phase": "Running"}

    def refresh(self) -> None:
        for pod, process in self.processes.items():
            code = process.poll()
            if code is None or pod not in self.pods or pod in self.evicted:
                continue
            state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
            self.pods[pod]["status"] = {
                "phase": "Succeeded" if code == 0 else "Failed",
                "containerStatuses": [{"state": state}],
            }
            self.logs[pod] = (self.folder / f"{pod}.log").read_text()
        for name, job in self.jobs.items():
            phases = [pod["status"]["phase"] for key, pod in self.pods.items() if key.startswith(name)]
            done = {"PyTorchJob": "Succeeded", "JobSet": "Completed"}[job["kind"]]
            ending = "Failed" if "Failed" in phases else done if set(phases) == {"Succeeded"} else None
            job["status"] = {"conditions": [{"type": ending, "status": "True"}]} if ending else {}

    def deleted(self, job: dict[str, Any]) -> None:
        for pod in [name for name in self.pods if name.startswith(job["metadata"]["name"])]:
            del self.pods[pod]
            if pod in self.processes:
                _kill(self.processes.pop(pod))

    def evict(self, pod: str) -> None:
        """Take a pod away at once, as when its node is lost."""
        with self.lock:
            self.evicted.add(pod)
            _kill(self.processes[pod])
            self.pods[pod]["status"] = {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "the node is low on x",
            }

    def end(self) -> None:
        for process in self.processes.values():
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _pods(job: dict[str, Any], port: str) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Yield name, template and the controller's own variables of each pod."""
    name, spec = job["metadata"]["name"], job["spec"]
    if job["kind"] == "PyTorchJob":
        roles = spec["pytorchReplicaSpecs"]
        count = sum(role["replicas"] for role in roles.values())
        rank = 0
        for role, prefix in (("Master", "master"), ("Worker", "worker")):
            for index in range(roles.get(role, {"replicas": 0})["replicas"]):
                # As Kubeflow's controller does; of pods, not of ranks.
                given = {"RANK": str(rank), "WORLD_SIZE": str(count), "PET_NODE_RANK": str(rank)}
                given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PET_NPROC_PER_NODE": "auto"}
                yield f"{name}-{prefix}-{index}", roles[role]["template"], given
                rank += 1
        return
    (replicated,) = spec["replicatedJobs"]
    inner = replicated["template"]["spec"]
    for index in range(inner["completions"]):
        pod = f"{name}-{replicated['name']}-0-{index}-x{index}z"
        yield pod, inner["template"], {"JOB_COMPLETION_INDEX": str(index)}


def image() -> dict[str, str]:
    """Return the variables of an image in which this checkout's dsforge is installed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": os.environ["HOME"], "PYTHONPATH": str(ROOT)}
