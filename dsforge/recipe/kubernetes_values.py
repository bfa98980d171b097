"""Values that end in a manifest of Kubernetes, in the forms that its API server takes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dsforge.recipe import patterns
from dsforge.recipe.quantities import Quoted

KubernetesLabel = Annotated[str, Field(strict=True, max_length=63, pattern=patterns.KUBERNETES_LABEL)]
"""Name of a namespace."""

KubernetesName = Annotated[str, Field(strict=True, max_length=253, pattern=patterns.KUBERNETES_NAME)]
"""Name of an object: a claim, a service account, a secret."""

KubernetesKey = Annotated[str, Field(strict=True, max_length=317, pattern=patterns.KUBERNETES_KEY)]
"""Key of a label, an annotation or a resource: `nvidia.com/gpu`."""

KubernetesValue = Annotated[str, Field(strict=True, max_length=63, pattern=patterns.KUBERNETES_VALUE), Quoted]
"""Value of a label."""

Toleration = Annotated[str, Field(strict=True, max_length=400, pattern=patterns.KUBERNETES_TOLERATION)]
"""A taint that pods bear, as kubectl writes it: `nvidia.com/gpu`, `team=nlp:NoSchedule`."""

Quantity = Annotated[str, Field(strict=True, max_length=40, pattern=patterns.QUANTITY), Quoted]
"""Amount of a resource: `8`, `500m`, `64Gi`."""

Image = Annotated[str, Field(strict=True, max_length=500, pattern=patterns.IMAGE)]
"""Reference of a container's image."""

MountPath = Annotated[str, Field(strict=True, max_length=500, pattern=patterns.ABSOLUTE_PATH)]
"""Where a volume is mounted."""
