"""The API server of a cluster, through the `kubernetes` package; what it refuses becomes a DsforgeError."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.render.kubernetes import kind_of

T = TypeVar("T")
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_KUBECONFIG = "~/.kube/config"
_REQUEST_SECONDS = (5.0, 30.0)
"""To connect, and for the answer."""
_GONE = 404
_LONGEST_MESSAGE = 300


class Cluster:
    """One namespace of a cluster, by your kubeconfig, or by a pod's own account where there is none."""

    def __init__(self, namespace: str | None) -> None:
        """Read the configuration; DsforgeError DSF701 without the package, DSF702 without a configuration."""
        try:
            from kubernetes import client, config
        except ImportError:
            raise DsforgeError(
                "DSF701",
                "the Python package kubernetes is not installed",
                hint="pip install 'dsforge[kubernetes]'",
                exit_code=ExitCode.ENVIRONMENT,
            ) from None
        settings = client.Configuration()
        settings.retries = 0  # who asks again here knows how long to go on
        # The package itself reads the variable once and for all when it is imported.
        files = os.environ.get("KUBECONFIG") or _KUBECONFIG
        try:
            default = _configure(settings, files)
        except Exception as error:  # noqa: BLE001 - the package checks no form: anything may break in it
            said = " ".join(str(error).split())[:_LONGEST_MESSAGE]
            if any(Path(file).expanduser().exists() for file in files.split(os.pathsep) if file):
                raise DsforgeError(
                    "DSF702",
                    f"{files} is no usable configuration of a cluster: {said}",
                    hint="mend it, or set KUBECONFIG to another; `kubectl config view` shows what it holds",
                    exit_code=ExitCode.ENVIRONMENT,
                ) from None
            try:
                config.load_incluster_config(client_configuration=settings)
                default = _ACCOUNT.read_text("utf-8").strip()
            except (config.ConfigException, OSError):
                raise DsforgeError(
                    "DSF702",
                    f"no cluster of Kubernetes is configured here: {said}",
                    hint="set KUBECONFIG, or copy the cluster's configuration to ~/.kube/config",
                    exit_code=ExitCode.ENVIRONMENT,
                ) from None
        self.namespace = namespace or default or "default"
        self.host = str(settings.host)
        api = client.ApiClient(settings)
        self._jobs, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)

    def create(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> str:
        """Create a job object and return its uid; with `dry_run` only ask whether it would be taken."""
        kind = kind_of(manifest)
        more = {"dry_run": "All"} if dry_run else {}
        made = self._call(
            f"create {kind.plural}.{kind.group}",
            lambda: self._jobs.create_namespaced_custom_object(
                kind.group,
                kind.version,
                self.namespace,
                kind.plural,
                dict(manifest),
                _request_timeout=_REQUEST_SECONDS,
                **more,
            ),
        )
        return str(made.get("metadata", {}).get("uid", ""))

    def create_secret(
        self,
        job: str,
        values: Mapping[str, str],
        owner: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        """Create the secret of a job, base64 of `values`; with an owner it goes when that goes."""
        metadata = {"name": job, "labels": {"app.kubernetes.io/managed-by": "dsforge"}}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {**metadata, **({"ownerReferences": [owner]} if owner else {})},
            "type": "Opaque",
            "data": dict(values),
        }
        more = {"dry_run": "All"} if dry_run else {}
        self._call(
            "create secrets",
            lambda: self._core.create_namespaced_secret(
                self.namespace, body, _request_timeout=_REQUEST_SECONDS, **more
            ),
        )

    def job(self, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a job object as it stands; None where there is none any more."""
        kind = kind_of(manifest)
        return self._unless_gone(
            f"get {kind.plural}.{kind.group}",
            lambda: self._jobs.get_namespaced_custom_object(
                kind.group,
                kind.version,
                self.namespace,
                kind.plural,
                manifest["metadata"]["name"],
                _request_timeout=_REQUEST_SECONDS,
            ),
        )

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return the pods with a label, as plain data."""
        found = self._call(
            "list pods",
            lambda: self._core.list_namespaced_pod(
                self.namespace,
                label_selector=selector,
                _request_timeout=_REQUEST_SECONDS,
                _preload_content=False,
            ),
        )
        items = json.loads(found.data).get("items") or []
        return list(items)

    def last_words(self, pod: str, lines: int) -> list[str]:
        """Return the last lines that a pod's container printed."""
        said = self._call(
            "get pods/log",
            lambda: self._core.read_namespaced_pod_log(
                pod,
                self.namespace,
                tail_lines=lines,
                _request_timeout=_REQUEST_SECONDS,
                _preload_content=False,
            ),
        )
        return bytes(said.data).decode("utf-8", "replace").splitlines()

    def delete(self, manifest: Mapping[str, Any]) -> None:
        """Have a job object deleted after everything that belongs to it; one that is gone is well."""
        kind = kind_of(manifest)
        self._unless_gone(
            f"delete {kind.plural}.{kind.group}",
            lambda: self._jobs.delete_namespaced_custom_object(
                kind.group,
                kind.version,
                self.namespace,
                kind.plural,
                manifest["metadata"]["name"],
                propagation_policy="Foreground",
                _request_timeout=_REQUEST_SECONDS,
            ),
        )

    def _unless_gone(self, what: str, call: Callable[[], T]) -> T | None:
        from kubernetes.client.exceptions import ApiException

        def known() -> T | None:
            try:
                return call()
            except ApiException as error:
                if error.status == _GONE:
                    return None
                raise

        return self._call(what, known)

    def _call(self, what: str, call: Callable[[], T]) -> T:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return call()
        except ApiException as error:
            raise self._refused(what, error.status or 0, error.body or error.reason) from None
        except (HTTPError, OSError, ValueError) as error:
            raise DsforgeError(
                "DSF702",
                f"the API server {self.host} cannot be reached: {str(error)[:_LONGEST_MESSAGE]}",
                hint="`kubectl cluster-info` with the same KUBECONFIG says more",
                exit_code=ExitCode.ENVIRONMENT,
            ) from None

    def _refused(self, what: str, status: int, body: Any) -> DsforgeError:
        said, missing = _said(body)
        where = f"namespace {self.namespace} of {self.host}"
        code, message = "DSF706", f"the API server refuses to {what} in {where}: {said}"
        hint = "mend what its words name: in launch.kubernetes, or in the cluster's rules"
        if status == 401:
            code, message = "DSF703", f"the API server {self.host} does not know you: {said}"
            hint = (
                "log in to the cluster again: the token or certificate in your kubeconfig is no longer taken"
            )
        elif status == 403:
            code, message = "DSF704", f"you may not {what} in {where}: {said}"
            hint = (
                "ask who runs the cluster for a role that may; docs/how-to/cluster.md lists what a run needs"
            )
        elif status == _GONE:
            code, message = "DSF705", f"there is nothing to {what} in {where}: {said}"
            hint = (
                "create the namespace, or name another in launch.kubernetes.namespace"
                if missing == "namespaces"
                else "install the controller of this kind, or set launch.kubernetes.kind to one that is there"
            )
        elif status >= 500:
            code, message = "DSF702", f"the API server {self.host} answers {status}: {said}"
            hint = "wait until the cluster is well again"
        return DsforgeError(code, message, hint=hint, exit_code=ExitCode.ENVIRONMENT)


def _configure(settings: Any, files: str) -> str | None:
    """Take the current context of kubeconfigs into settings and return its namespace; any exception.

    ValueError for a cluster without a server, which the package would let pass.
    """
    from kubernetes import config

    config.load_kube_config(files, client_configuration=settings)
    server = urlsplit(settings.host)
    if server.scheme not in ("http", "https") or not server.hostname:
        raise ValueError(f"the cluster of its context has no server https://..., but {settings.host!r}")
    _, context = config.list_kube_config_contexts(files)
    namespace = context["context"].get("namespace")
    return None if namespace is None else str(namespace)


def _said(body: Any) -> tuple[str, str]:
    """Return the words of an answer, and the kind of what is missing where it says so."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
    try:
        answer = json.loads(text)
        return str(answer["message"])[:_LONGEST_MESSAGE], str((answer.get("details") or {}).get("kind", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return text.strip()[:_LONGEST_MESSAGE] or "without a word", ""
