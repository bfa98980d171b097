"""How every trainer scales the loss in fp16, so that small gradients do not vanish.

Source: Micikevicius et al. 2018 (Mixed Precision Training, arXiv:1710.03740), section 3.2; first value and
steps between raises as in PyTorch's GradScaler.
"""

from __future__ import annotations

FIRST_POWER = 16
"""The first scale, a power of two."""
LEAST = 1
"""Below it gradients themselves are out of fp16's range."""
STEPS_TO_RAISE = 2000
"""Steps without an overflow after which the scale is doubled; each overflow halves it."""
