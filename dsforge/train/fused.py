"""Which fused parts a machine has: used where they are installed, and said at start."""

from __future__ import annotations

import copy
import importlib.util
import logging
from typing import Any

import torch

log = logging.getLogger(__name__)


def found(device: torch.device, attention_dropout: float) -> dict[str, str]:
    """Return part to what carries it on this device, for the run's events."""
    flash = torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.is_flash_attention_available()
    kind = "cpu" if device.type != "cuda" else "flash" if flash else "no flash"
    fused = f"torch scaled_dot_product_attention ({kind})"
    parts = {"attention": "unfused, for its dropout" if attention_dropout else fused}
    if device.type != "cuda":
        return parts
    for name in ("transformer_engine", "apex", "flash_attn"):
        if importlib.util.find_spec(name) is not None:
            parts[name] = "installed, not used"
    return parts


def with_usable_optimizer(ds_config: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return the configuration with PyTorch's AdamW where deepspeed's fused one cannot be built."""
    config = copy.deepcopy(ds_config)
    options = config.get("optimizer", {}).get("params", {"torch_adam": True})
    if device.type != "cuda" or options.get("torch_adam"):
        return config
    from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder

    offloaded = "offload_optimizer" in config["zero_optimization"]
    try:
        (CPUAdamBuilder if offloaded else FusedAdamBuilder)().load()
    except Exception as error:  # noqa: BLE001 - a compiler, its absence or a driver may raise anything
        log.warning("deepspeed's AdamW cannot be built here, using PyTorch's fused one: %s", error)
        options |= {"torch_adam": True, "fused": True}
    return config
