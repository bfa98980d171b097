"""From a parsed `config.json` to a row of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.catalog.hf import dense, experts
from dsforge.catalog.hf.config import Config, Row, shown

_KNOWN: dict[str, tuple[str, Callable[[Config], Row]]] = {
    "bloom": ("BloomForCausalLM", dense.bloom),
    "deepseek_v3": ("DeepseekV3ForCausalLM", experts.deepseek_v3),
    "falcon": ("FalconForCausalLM", dense.falcon),
    "gemma": ("GemmaForCausalLM", dense.gemma),
    "gemma2": ("Gemma2ForCausalLM", dense.gemma2),
    "gpt2": ("GPT2LMHeadModel", dense.gpt2),
    "gpt_neox": ("GPTNeoXForCausalLM", dense.gpt_neox),
    "gpt_oss": ("GptOssForCausalLM", experts.gpt_oss),
    "llama": ("LlamaForCausalLM", dense.llama),
    "mistral": ("MistralForCausalLM", dense.mistral),
    "mixtral": ("MixtralForCausalLM", experts.mixtral),
    "opt": ("OPTForCausalLM", dense.opt),
    "phi3": ("Phi3ForCausalLM", dense.phi3),
    "qwen2": ("Qwen2ForCausalLM", dense.qwen2),
    "qwen2_moe": ("Qwen2MoeForCausalLM", experts.qwen2_moe),
    "qwen3": ("Qwen3ForCausalLM", dense.qwen3),
    "qwen3_moe": ("Qwen3MoeForCausalLM", experts.qwen3_moe),
}
"""model_type: the class with a language-model head, and how its configuration is read."""


def model_types() -> tuple[str, ...]:
    """Return every `model_type` that can be read."""
    return tuple(_KNOWN)


def model_row(values: Mapping[str, Any], name: str) -> Row:
    """Return the row that a parsed `config.json` describes; `name` is used in messages.

    Keys that no class of transformers reads for its weights change nothing here either. DsforgeError:
    DSF033 for a `model_type` that is not known, DSF034 for a value that is missing or not known and
    would change the count.
    """
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in _KNOWN:
        said = f"`model_type: {shown(model_type)}`" if model_type is not None else "no `model_type`"
        raise DsforgeError(
            "DSF033",
            f"{name} has {said}, which is not an architecture known here",
            hint=f"known: {', '.join(_KNOWN)}; or write the shape out",
        )
    head, read = _KNOWN[model_type]
    config = Config(values, name)
    if values.get("architectures") not in (None, [], [head]):
        config.fail(
            "architectures", f"is not known here: only {head} is", "name a language model's config.json"
        )
    config.must("is_encoder_decoder", False)
    return read(config)
