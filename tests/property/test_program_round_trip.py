"""A recipe's own command line or configuration for an external program, read back, makes the same plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsforge.base import shell
from dsforge.base.canonical import dumps
from dsforge.base.errors import DsforgeError
from dsforge.foreign.text import Kind, kind_of
from dsforge.ops.foreign_init import Wanted, import_recipe
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from dsforge.recipe.yaml_text import block_lines
from dsforge.render.deepspeed_config import deepspeed_config
from tests.support.recipes import SHIPPED, plan_of

GPT = {
    "arch": "gpt",
    "layers": 8,
    "hidden": 64,
    "heads": 4,
    "vocab": 512,
    "kv_heads": None,
    "ffn_hidden": 256,
}
LLAMA = {**GPT, "arch": "llama", "kv_heads": 2, "ffn_hidden": 192, "rope_theta": 500000.0, "tied": False}
PARTS = ("layout", "batch", "train", "optimizer", "data", "checkpoint", "sinks")
ROOM = "/checkpoints"


def script_of(plan: Plan) -> str:
    """Return a plan's command line as people keep it: a shell script that writes the JSON it names."""
    program = plan.external
    assert program is not None
    places = {"bundle": "/tmp/", "attempt": "/runs/"}
    words = [
        ROOM if word.base == "checkpoints" else places.get(word.base or "", "") + word.text
        for word in program.arguments
    ]
    layout = plan.layout
    hosts = layout.world_size // layout.gpus_per_node
    starter = ["torchrun", f"--nproc_per_node={layout.gpus_per_node}", f"--nnodes={hosts}"]
    lines = ["#!/bin/bash", f"ARGS=({shell.join(words)})"]
    if program.flavour == "megatron-deepspeed":
        starter = ["deepspeed", "--num_gpus", str(layout.gpus_per_node), "--num_nodes", str(hosts)]
        lines += ["cat > /tmp/ds_config.json <<'EOT'", dumps(deepspeed_config(plan)).rstrip("\n"), "EOT"]
    return "\n".join(
        [*lines, f'{shell.join([*starter, f"{program.path}/{program.entry}"])} "${{ARGS[@]}}"', ""]
    )


def configuration_of(plan: Plan) -> str:
    """Return a plan's configuration for GPT-NeoX with dashes in its keys, as people write them."""
    program = plan.external
    assert program is not None
    assert program.configuration is not None
    data = {key.replace("_", "-"): value for key, value in program.configuration.items()}
    for key, base in program.configuration_bases.items():
        if base == "checkpoints":
            data[key.replace("_", "-")] = ROOM
    return "\n".join(line for _, line in block_lines(data)) + "\n"


def imported(plan: Plan, folder: Path) -> Plan:
    program = plan.external
    assert program is not None
    changes = [f"name={plan.name}", f"model.vocab={plan.model.vocab}"]
    kind, path, text = Kind.MEGATRON, folder / "run.sh", ""
    if program.flavour == "gpt-neox":
        kind, path, text = Kind.NEOX, folder / "run.yml", configuration_of(plan)
        # What the configuration has no place for.
        changes += [f"external.path={program.path}", f"cluster.gpus_per_node={plan.layout.gpus_per_node}"]
    else:
        text = script_of(plan)
    path.write_text(text, "utf-8")
    assert kind_of(path) is kind
    made = import_recipe(path, kind, Wanted(gpu=plan.gpu, changes=tuple(changes)))
    return make_plan(load_recipe(folder / "made.yaml", text=made.text))


def same(plan: Plan, folder: Path) -> None:
    again = imported(plan, folder)
    for part in PARTS:
        assert getattr(again, part) == getattr(plan, part)
    ours, theirs = plan.external, again.external
    assert ours is not None
    assert theirs is not None
    assert (theirs.flavour, theirs.path, theirs.entry) == (ours.flavour, ours.path, ours.entry)
    assert theirs.configuration == ours.configuration
    names = {"name", "nominal_parameters"}
    assert again.model.model_dump(exclude=names) == plan.model.model_dump(exclude=names)
    assert sorted(word.text for word in theirs.arguments) == sorted(word.text for word in ours.arguments)


def flavoured(flavour: str, model: dict[str, Any], **sections: Any) -> Plan:
    words = {"arguments": ["--use-flash-attn-v2"]} if flavour == "megatron-deepspeed" else {}
    sets = {"train": [[2.0, "/data/a b"], [1.0, "/data/$x;'y'"]], "tokenizer": "/data/tokenizer.json"}
    if flavour != "gpt-neox":
        sets.pop("tokenizer")
    return plan_of(
        {"model": model, "trainer": "external", "external": {"flavour": flavour, "path": "/src/it", **words}},
        {"data": {**sets, "valid": [[1.0, "/data/v"]]}, "checkpoint": {"dir": ROOM}},
        *({name: section} for name, section in sections.items()),
    )


OPTIMIZERS = st.fixed_dictionaries(
    {
        "lr": st.floats(1e-4, 1e-2),
        "min_lr": st.floats(0, 1e-5),
        "betas": st.tuples(st.floats(0.1, 0.99), st.floats(0.1, 0.999)).map(list),
        "eps": st.floats(1e-12, 1e-4),
        "weight_decay": st.floats(0, 1),
        "grad_clip": st.floats(0.1, 10),
        "lr_schedule": st.sampled_from(["cosine", "linear", "constant"]),
        "warmup_steps": st.integers(0, 20),
    }
)


@given(
    flavour=st.sampled_from(["megatron-deepspeed", "megatron-lm", "gpt-neox"]),
    llama=st.booleans(),
    layout=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.sampled_from([0, 1, 2, 3])),
    batch=st.tuples(st.integers(1, 4), st.integers(1, 8)),
    train=st.fixed_dictionaries(
        {
            "steps": st.integers(50, 10**6),
            "precision": st.sampled_from(["fp32", "bf16", "fp16"]),
            "seed": st.integers(1, 2**31),
            "dropout": st.sampled_from([0.0, 0.1]),
            "attention_dropout": st.sampled_from([0.0, 0.1]),
            "recompute": st.sampled_from(["none", "full"]),
            "eval_every": st.sampled_from([0, 7]),
        }
    ),
    optimizer=OPTIMIZERS,
    every=st.sampled_from([0, 10]),
)
def test_the_same_plan_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    flavour: str,
    llama: bool,
    layout: tuple[int, int, int],
    batch: tuple[int, int],
    train: dict[str, Any],
    optimizer: dict[str, Any],
    every: int,
):
    tp, pp, zero = layout
    dp, (micro, accumulation) = 8 // (tp * pp), batch
    samples = {"eval_samples": micro * accumulation * dp * 2} if train["eval_every"] else {}
    sets = {} if train["eval_every"] else {"data": {"valid": None}}
    try:
        plan = flavoured(
            flavour,
            LLAMA if llama else GPT,
            cluster={"nodes": 1, "gpus_per_node": 8, "gpu": "a100-sxm-80gb"},
            parallel={"tp": tp, "pp": pp, "dp": dp, "zero": zero},
            batch={"global": micro * accumulation * dp, "micro": micro, "seq_len": 64},
            train={**train, **samples},
            optimizer=optimizer,
            checkpoint={"every_steps": every},
            **sets,
        )
    except DsforgeError:
        return  # a rule refuses the layout for this program: nothing is rendered of it
    if any(one["severity"] == "error" for one in plan.findings):
        return  # shown only
    same(plan, tmp_path_factory.mktemp("back"))


@pytest.mark.parametrize("flavour", ["megatron-deepspeed", "megatron-lm", "gpt-neox"])
def test_at_least_one_of_each_flavour_is_tried(tmp_path: Path, flavour: str):
    plan = flavoured(
        flavour,
        GPT,
        cluster={"nodes": 1, "gpus_per_node": 8, "gpu": "a100-sxm-80gb"},
        parallel={"tp": 2, "pp": 2, "zero": 1},
        batch={"global": 16, "micro": 2, "seq_len": 64},
        train={"steps": 50, "precision": "bf16", "eval_every": 10, "eval_samples": 32},
    )
    same(plan, tmp_path)


def with_flavour(path: Path, flavour: str) -> Plan | None:
    """Return the plan of a shipped recipe under another program, None where that refuses it."""
    # Data sets, since the built-in corpus lies in the run's own folder.
    changes = [
        "trainer=external",
        f"external={{flavour: {flavour}, path: /src/it}}",
        "data={train: /data/a, tokenizer: /data/t.json}"
        if flavour == "gpt-neox"
        else "data={train: /data/a, workers: 3}",
        f"checkpoint.dir={ROOM}",
        "train.eval_every=0",
    ]
    try:
        return make_plan(load_recipe(path, changes))
    except DsforgeError:
        return None


def test_shipped_recipes_come_back(tmp_path: Path):
    tried = 0
    for flavour in ("megatron-deepspeed", "megatron-lm", "gpt-neox"):
        for path in SHIPPED:
            plan = with_flavour(path, flavour)
            if plan is None or plan.external is None:
                continue
            folder = tmp_path / f"{flavour}-{path.stem}"
            folder.mkdir()
            same(plan, folder)
            tried += 1
    assert tried >= 9
