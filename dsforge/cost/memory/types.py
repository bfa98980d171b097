"""What the memory model returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes of each rank of one pipeline stage; ranks of a stage are alike.

    `components` sum to `allocated`, what tensors hold at a step's fullest moment. `static`: what they hold
    between steps. `reserved`: what PyTorch's allocator has taken from the device; `device`: what nvidia-smi
    shows, the CUDA context and NCCL's buffers included. `host_bytes` and `nvme_bytes` are what offload takes
    of one node.
    """

    stage: int
    layers: int
    components: dict[str, int]
    static: int
    allocated: int
    reserved: int
    device: int
    host_bytes: int
    nvme_bytes: int
