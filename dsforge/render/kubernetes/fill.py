"""A rendered job object becomes that of one attempt: its name, its variables, its folder."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsforge.records import environment

LABEL = "dsforge/job"
"""Label of a job object and of its pods."""
PORT = "MASTER_PORT"
_UNSAFE = re.compile("[^a-z0-9]+")
_LONGEST_NAME = 20
"""What controllers add to a job's name must still be a host's name of at most 63 characters."""
_DIGITS = 10


def escaped(value: str) -> str:
    """Return a value of a variable as Kubernetes gives it to a container again, which expands `$(NAME)`."""
    return value.replace("$", "$$")


def slug(name: str) -> str:
    """Return a name in which objects may be named: lower-case letters, digits and `-`, a letter first."""
    return f"dsf-{_UNSAFE.sub('-', name.lower())[:_LONGEST_NAME].strip('-')}".rstrip("-")


def job_name(name: str, attempt: str) -> str:
    """Return the name of an attempt's job object. `attempt`: the path of its folder, unlike any other's."""
    return f"{slug(name)}-{hashlib.sha256(attempt.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGITS]}"


@dataclass(frozen=True, slots=True)
class Filling:
    """What a job object of one attempt has besides what is rendered.

    `environ`: variables of the run, which come first. `port`: where ranks meet, unless the object's
    controller says it. `folder`: where its programs start.
    """

    job: str
    environ: Mapping[str, str]
    folder: str
    port: str | None = None


def fill(manifest: Mapping[str, Any], filling: Filling) -> dict[str, Any]:
    """Return the job object of an attempt; the rendered one is left as it is."""
    filled = copy.deepcopy(dict(manifest))
    filled["metadata"]["name"] = filling.job
    filled["metadata"].setdefault("labels", {})[LABEL] = filling.job
    first = {**filling.environ, environment.JOB: filling.job}
    for template in _templates(filled["spec"]):
        template["metadata"]["labels"][LABEL] = filling.job
        for container in template["spec"]["containers"]:
            if "env" not in container:
                continue  # it starts no ranks
            container["workingDir"] = filling.folder
            kept = [_filled(entry, filling) for entry in container["env"] if entry["name"] not in first]
            container["env"] = [
                {"name": name, "value": escaped(first[name])} for name in sorted(first)
            ] + kept
    return filled


def _filled(entry: dict[str, Any], filling: Filling) -> dict[str, Any]:
    if "valueFrom" in entry:
        entry["valueFrom"]["secretKeyRef"]["name"] = filling.job
    elif entry["name"] == PORT and filling.port is not None:
        entry["value"] = escaped(filling.port)
    return entry


def _templates(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the templates of pods, which are those whose spec has containers."""
    if not isinstance(node, dict | list):
        return
    if isinstance(node, dict) and "containers" in node.get("spec", {}):
        yield node
        return
    for inner in node.values() if isinstance(node, dict) else node:
        yield from _templates(inner)
