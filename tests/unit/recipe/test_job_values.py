"""What a recipe asks PBS and Kubernetes for is what they read, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from dsforge.recipe.kubernetes_values import (
    Image,
    KubernetesKey,
    KubernetesName,
    MountPath,
    Quantity,
    Toleration,
)
from dsforge.recipe.pbs_values import PbsName, PbsResources, PbsValue


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PbsName, "work@server"),
        (PbsValue, "400gb"),
        (PbsValue, "a100/80"),
        (PbsResources, {"mem": "400gb", "gpu_type": "a100"}),
        (Image, "ghcr.io/team/x:1.2"),
        (Image, "localhost:5000/x@sha256:" + "a" * 64),
        (Image, "nvcr.io/nvidia/pytorch:24.05-py3"),
        (KubernetesKey, "nvidia.com/gpu"),
        (KubernetesKey, "Team_1"),
        (KubernetesName, "a.b-c"),
        (Toleration, "nvidia.com/gpu=present:NoSchedule"),
        (MountPath, "/mnt/.cache/..x/..."),
        (Quantity, "8"),
    ],
)
def test_what_they_take_passes(kind: Any, value: Any):
    assert TypeAdapter(kind).validate_python(value) == value


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (PbsValue, "400gb+4", "pattern"),
        (PbsValue, "4:ngpus=8", "pattern"),
        (PbsValue, "a@b", "pattern"),
        (PbsResources, {"mem+4": "1"}, "pattern"),
        (PbsResources, {"mem@x": "1"}, "pattern"),
        (PbsResources, {"Host": "n1"}, "from the recipe's other keys"),
        (PbsResources, {"NCPUS": "1"}, "from the recipe's other keys"),
        (PbsResources, {"mem": "1gb", "Mem": "2gb"}, "has `mem` twice"),
        (PbsValue, 400, "is a number, which YAML rewrites"),
        (PbsValue, True, "in quotes"),
        (Quantity, 8, "is a number, which YAML rewrites"),
        (Image, "a:b:c@@//", "pattern"),
        (Image, "a//b", "pattern"),
        (Image, "a:", "pattern"),
        (Image, "registry/Name", "pattern"),
        (KubernetesKey, "a..b/c", "pattern"),
        (KubernetesKey, "a.-b/c", "pattern"),
        (KubernetesName, "a..b", "pattern"),
        (Toleration, "a..b/c=d", "pattern"),
        (MountPath, "/tmp/../etc", "pattern"),
        (MountPath, "/mnt/./a", "pattern"),
        (MountPath, "/..", "pattern"),
        (MountPath, "/mnt//a", "pattern"),
    ],
)
def test_what_would_ask_for_something_else_is_refused(kind: Any, value: Any, why: str):
    with pytest.raises(ValidationError, match=why):
        TypeAdapter(kind).validate_python(value)
