"""Whatever a rule finds in a drawn recipe, its fix, typed as `key=value`, silences it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dsforge.base.errors import Finding
from tests.support.recipes import SMALL, findings_of, write

overrides = st.fixed_dictionaries(
    {},
    optional={
        "parallel.tp": st.integers(1, 12),
        "parallel.pp": st.integers(1, 9),
        "parallel.dp": st.integers(1, 9) | st.just("auto"),
        "parallel.zero": st.sampled_from([0, 1, 2, 3, "auto"]),
        "parallel.partition": st.sampled_from(["uniform", "parameters"]),
        "parallel.vp": st.integers(1, 3),
        "cluster.nodes": st.integers(1, 4),
        "cluster.gpus_per_node": st.integers(1, 12),
        "model.arch": st.sampled_from(["gpt", "llama"]),
        "model.layers": st.integers(1, 9),
        "model.heads": st.integers(1, 12),
        "model.kv_heads": st.integers(1, 12),
        "model.ffn_hidden": st.integers(1, 400),
        "model.max_positions": st.integers(1, 128),
        "batch.global": st.integers(1, 300),
        "batch.micro": st.integers(1, 9),
        "optimizer.warmup_steps": st.integers(0, 60),
        "optimizer.min_lr": st.floats(0, 1),
        "offload.path": st.just("/nvme"),
        "monitor.wandb": st.just("true"),
        "train.precision": st.sampled_from(["fp32", "bf16", "fp16"]),
    },
)


@settings(max_examples=40)
@given(overrides)
def test_a_fix_silences_its_finding(chosen: dict[str, object]):
    def same(one: Finding, other: Finding) -> bool:
        return one.code == other.code and one.key == other.key

    words = [f"{key}={value}" for key, value in chosen.items()]
    with tempfile.TemporaryDirectory() as folder:
        recipe = write(Path(folder), SMALL)
        for finding in findings_of(recipe, *words):
            assert finding.hint
            assert finding.place is not None
            if finding.fix is not None:
                left = findings_of(recipe, *words, str(finding.fix))
                assert not any(same(finding, other) for other in left), (finding, str(finding.fix))
