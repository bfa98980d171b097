"""A tensor's bits in one number, computed where the tensor lies and the same wherever it is computed.

Every element's bits, with its place, pick an output of SplitMix64; the outputs are added up modulo 2^64, in
any order. Two tensors that differ in a bit have the same number once in 2^64.
"""

from __future__ import annotations

import torch

from dsforge.train.dropout import outputs

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK = 1 << 22
"""Elements looked at together: each takes some 32 bytes meanwhile."""


@torch.no_grad()
def digest(values: torch.Tensor) -> torch.Tensor:
    """Return the int64 number [] of the bits of a flat tensor; 0 of one without elements."""
    bits = values.contiguous().view(_BITS[values.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for start in range(0, len(bits), _CHUNK):
        part = bits[start : start + _CHUNK].to(torch.int64)
        places = torch.arange(start, start + len(part), device=values.device)
        total += outputs(part, places).sum()
    return total
