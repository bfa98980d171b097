"""The job object of Kubernetes: rendered without a run, and filled in for one attempt of it."""

from dsforge.render.kubernetes.fill import Filling, fill, job_name
from dsforge.render.kubernetes.kinds import KINDS, Kind, kind_of
from dsforge.render.kubernetes.manifest import MPI_SCRIPT, manifest

__all__ = ["KINDS", "MPI_SCRIPT", "Filling", "Kind", "fill", "job_name", "kind_of", "manifest"]
