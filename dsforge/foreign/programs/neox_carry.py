"""A GPT-NeoX configuration as what a recipe carries of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.engines.neox import neox_keys
from dsforge.external.changes import change_by
from dsforge.external.options import Given, option_table
from dsforge.foreign.findings import is_number, shown
from dsforge.foreign.imports import Left
from dsforge.foreign.programs.carry import GPT2_VOCABULARY
from dsforge.foreign.programs.carrying import Carrying
from dsforge.foreign.programs.neox import Configuration, said_by
from dsforge.foreign.programs.said import Said, Solved, solve
from dsforge.foreign.programs.shape import carry_shape
from dsforge.plan.types import Program

_PLAIN = (
    *("parallel.tp", "parallel.zero", "batch.seq_len", "train.precision", "train.seed", "train.dropout"),
    *("train.attention_dropout", "train.recompute_every", "train.steps", "optimizer.lr", "optimizer.min_lr"),
    *("optimizer.lr_schedule", "optimizer.weight_decay", "optimizer.eps", "optimizer.grad_clip"),
    "monitor.tensorboard",
)
_REASONS = {
    "fp16": "the run is none in fp16",
    "log_interval": "every step is logged",
    "steps_per_print": "every step is logged",
    "wall_clock_breakdown": "step times are logged",
    "tensorboard_dir": "where logs go is the run directory's business",
    "log_dir": "where logs go is the run directory's business",
    "master_port": "the rendezvous is dsforge's own",
    "master_addr": "the rendezvous is dsforge's own",
    "merge_file": "data are tokens already",
}

_MATTERS = ("split",)
"""Defaults of the program that the recipe's run overrules with another share of the data."""


class NeoxCarrying(Carrying):
    """The import of one configuration."""

    def __init__(self, configuration: Configuration, given: Mapping[str, Any], replicas: int | None) -> None:
        super().__init__(given)
        self.configuration = configuration
        self.replicas = replicas
        self.said = said_by(configuration)
        self.found = solve(flavour_of("gpt-neox"), self.said)

    def value(self, key: str) -> Any:
        """Return the value of a key, its default, or None."""
        return self.said[key].value if key in self.said else None

    def given_said(self, key: str) -> Said | None:
        """Return a key that the files say."""
        one = self.said.get(key)
        return one if one is not None and one.given and one.value is not None else None


def carry_neox(
    configuration: Configuration, file: str, *, given: Mapping[str, Any], replicas: int | None
) -> NeoxCarrying:
    """Return what a recipe carries of a configuration, what not, and what must be given."""
    carrying = NeoxCarrying(configuration, given, replicas)
    carrying.derive("trainer", "external", "a configuration of gpt-neox")
    carrying.derive("external.flavour", "gpt-neox", "its keys")
    if "external.path" not in given:
        carrying.derive("external.path", ".", "the folder of the checkout: set it where this is not it")
    _model(carrying, file)
    for key in _PLAIN:
        carrying.solved(key, carrying.found.get(key))
    if carrying.given_said("train_iters") is None:
        carrying.need("train.steps", None, "the files do not say how long to train")
    stages = carrying.said["pipe_parallel_size"]
    carrying.carry("parallel.pp", max(1, stages.value or 0), stages)
    if stages.value == 1:
        why = (
            "a pipeline of one stage; the recipe's run has a plain module, whose checkpoints are other files"
        )
        carrying.leave(stages, why)
    _cluster(carrying)
    _batch(carrying)
    _optimizer(carrying)
    _data(carrying)
    _checkpoints(carrying)
    _pass_on(carrying)
    return carrying


def _model(carrying: NeoxCarrying, file: str) -> None:
    found = dict(carrying.found)
    other = carrying.given_said("gpt_j_residual")
    if other is not None and other.value is True and "model" not in carrying.given:
        hint = "add --model NAME: a preset, or a config.json that says it"
        message = "no shape that a recipe writes out computes attention and MLP side by side"
        raise DsforgeError("DSF691", message, other.place, hint)
    gated = "model.activation" in found and found["model.activation"].value == "swiglu"
    width, hidden = carrying.given_said("intermediate_size"), carrying.value("hidden_size")
    if width is not None:
        found["model.ffn_hidden"] = Solved(width.value // 3 if gated else width.value, width)
    elif gated and isinstance(hidden, int):
        found["model.ffn_hidden"] = Solved(int(4 * hidden * 2 / 3) // 2, carrying.said["hidden_size"])
    for name, norm in (("layernorm_epsilon", "layernorm"), ("rms_norm_epsilon", "rmsnorm")):
        if carrying.value("norm") == norm:
            found["model.norm_eps"] = Solved(carrying.value(name), carrying.said[name])
    carry_shape(carrying, found, file)
    carrying.used |= {"intermediate_size", "mlp_multiple_of", "gpt_j_residual", "gpt_j_tied"}
    carrying.used |= {"use_bias_in_attn_linear", "use_bias_in_mlp", "use_bias_in_norms"}
    if "model" not in carrying.given:
        if carrying.value("tokenizer_type") == "GPT2BPETokenizer":
            carrying.derive("model.vocab", GPT2_VOCABULARY, "the vocabulary of GPT-2's tokenizer")
        else:
            kind = carrying.said["tokenizer_type"]
            carrying.need("model.vocab", kind, "the tokenizer's size does not stand in the file")


def _cluster(carrying: NeoxCarrying) -> None:
    nodes, per_node = carrying.given_said("num_nodes"), carrying.given_said("num_gpus")
    world = carrying.given_said("global_num_gpus")
    if per_node is not None:
        if nodes is not None and nodes.value > 0:
            carrying.carry("cluster.nodes", nodes.value, nodes)
        carrying.carry("cluster.gpus_per_node", per_node.value, per_node)
    elif world is not None:
        hosts = world.value // 8 if world.value > 8 and world.value % 8 == 0 else 1
        carrying.derive("cluster.nodes", hosts, f"{world.value} GPUs in all", world.place)
        carrying.derive(
            "cluster.gpus_per_node", world.value // hosts, f"{world.value} GPUs in all", world.place
        )
    carrying.used.add("global_num_gpus")
    if (hostfile := carrying.given_said("hostfile")) is not None:
        carrying.carry("cluster.hostfile", hostfile.value, hostfile)
        for word in ("include", "exclude"):
            if (choice := carrying.given_said(word)) is not None and choice.value:
                carrying.carry(f"cluster.{word}", choice.value, choice)
    launcher = carrying.given_said("launcher")
    if launcher is not None and launcher.value in ("pdsh", "openmpi", "mpich", "slurm"):
        carrying.carry("launch.launcher", launcher.value, launcher)


def _batch(carrying: NeoxCarrying) -> None:
    total, micro = (
        carrying.given_said(f"train_{name}") for name in ("batch_size", "micro_batch_size_per_gpu")
    )
    steps, replicas = carrying.given_said("gradient_accumulation_steps"), carrying.replicas
    count = steps.value if steps is not None else 1
    carrying.used.add("gradient_accumulation_steps")
    if micro is not None:
        carrying.carry("batch.micro", micro.value, micro)
    elif total is not None and replicas and total.value % (count * replicas) == 0:
        words = f"{total.value} / (accumulation {count} x DP {replicas})"
        carrying.derive("batch.micro", total.value // (count * replicas), words, total.place)
    if total is not None:
        carrying.carry("batch.global", total.value, total)
    elif micro is not None and replicas:
        words = f"micro {micro.value} x accumulation {count} x DP {replicas}"
        carrying.derive("batch.global", micro.value * count * replicas, words, micro.place)


def _optimizer(carrying: NeoxCarrying) -> None:
    kind, betas = carrying.said["optimizer.type"], carrying.said.get("optimizer.params.betas")
    name = "adamw" if str(kind.value).lower() in ("adam", "adamw") else str(kind.value)
    carrying.carry("optimizer.type", name, kind)
    if betas is not None and betas.value is not None:
        carrying.carry("optimizer.betas", betas.value, betas)
    else:
        carrying.derive("optimizer.betas", [0.9, 0.999], "the engine's default")
    decay = carrying.given_said("lr_decay_iters") or carrying.given_said("train_iters")
    share = carrying.said["warmup"]
    if decay is not None and share.value is not None:
        words = f"warmup {share.value} of {decay.value} steps"
        carrying.derive("optimizer.warmup_steps", round(share.value * decay.value), words, share.place)
    carrying.used |= {"warmup"}
    if (steps := carrying.given_said("lr_decay_iters")) and steps.value == carrying.value("train_iters"):
        carrying.used.add("lr_decay_iters")
    recompute = carrying.said["checkpoint_activations"]
    carrying.carry("train.recompute", "full" if recompute.value else "none", recompute)
    for place, key in (("offload_optimizer", "offload.optimizer"), ("offload_param", "offload.parameters")):
        device = carrying.given_said(f"zero_optimization.{place}.device")
        if device is not None and device.value != "none":
            carrying.carry(key, device.value, device)
    old = carrying.given_said("zero_optimization.cpu_offload")
    if old is not None:
        carrying.used.add(old.option)
        if old.value is True:
            carrying.carry("offload.optimizer", "cpu", old)


def _weighted(carrying: NeoxCarrying, kind: str) -> tuple[Said, list[list[Any]]] | None:
    paths, weights = (carrying.given_said(f"{kind}_data_{part}") for part in ("paths", "weights"))
    if paths is None or not isinstance(paths.value, list):
        return None
    each = weights.value if weights is not None else [1.0] * len(paths.value)
    if not isinstance(each, list) or len(each) != len(paths.value) or not all(map(is_number, each)):
        carrying.need(f"data.{kind}", paths, "there is not one weight, a number, for each path")
        return None
    carrying.used |= {f"{kind}_data_paths", f"{kind}_data_weights"}
    return paths, [[float(weight), path] for weight, path in zip(each, paths.value, strict=True)]


def _data(carrying: NeoxCarrying) -> None:
    one, sets = carrying.given_said("data_path"), _weighted(carrying, "train")
    valid, test = _weighted(carrying, "valid"), _weighted(carrying, "test")
    if sets is not None:
        carrying.carry("data.train", sets[1], sets[0])
    elif one is not None:
        carrying.carry("data.train", [[1.0, one.value]], one)
    has_data = sets is not None or one is not None
    if valid is not None and not carrying.value("eval_iters"):
        if sets is None or valid[1] != sets[1]:
            carrying.leave(valid[0], "nothing is validated with eval_iters 0")
        valid = None
    if valid is not None:
        carrying.carry("data.valid", valid[1], valid[0])
    if test is not None and test[1] not in [one[1] for one in (valid, sets) if one is not None]:
        carrying.leave(test[0], "a recipe has no test set")
    if has_data:
        carrying.carry("data.workers", carrying.value("num_workers"), carrying.said["num_workers"])
        vocabulary = carrying.given_said("vocab_file")
        if vocabulary is not None and carrying.value("tokenizer_type") == "HFTokenizer":
            carrying.carry("data.tokenizer", vocabulary.value, vocabulary)
        elif "data.tokenizer" not in carrying.given:
            carrying.need(
                "data.tokenizer", vocabulary, "the program reads a tokenizer.json to know the end mark"
            )
    carrying.used.add("tokenizer_type")
    _validation(carrying, own=valid is not None or "data.valid" in carrying.given)


def _validation(carrying: NeoxCarrying, *, own: bool) -> None:
    every, batches = carrying.said["eval_interval"], carrying.said["eval_iters"]
    total = carrying.out.value("batch.global") or carrying.given.get("batch.global")
    if own and isinstance(total, int) and batches.value:
        carrying.carry("train.eval_every", every.value, every)
        words = f"{batches.value} batches of {total}"
        carrying.derive("train.eval_samples", batches.value * total, words, batches.place)
        carrying.used |= {"eval_iters", "split"}
    elif not batches.value:
        carrying.used |= {"eval_interval", "eval_iters"}
    if own:
        carrying.used.add("split")


def _checkpoints(carrying: NeoxCarrying) -> None:
    save, load, every = (carrying.given_said(name) for name in ("save", "load", "checkpoint_factor"))
    if save is not None:
        carrying.carry("checkpoint.dir", save.value, save)
    if load is not None:
        same = save is not None and save.value == load.value
        carrying.carry("checkpoint.resume", "auto" if same else load.value, load)
    else:
        carrying.derive("checkpoint.resume", "never", "nothing is loaded")
    if save is None:
        carrying.derive("checkpoint.at_end", False, "nothing is saved")
        carrying.used.add("checkpoint_factor")
    elif every is not None:
        steps = carrying.value("train_iters")
        carrying.carry("checkpoint.every_steps", 0 if every.value == steps else every.value, every)
    keep = carrying.said["keep_last_n_checkpoints"]
    carrying.carry("checkpoint.keep", keep.value or 0, keep)


def _pass_on(carrying: NeoxCarrying) -> None:
    """Pass on what no key of a recipe says, as assignments to the program's own keys."""
    flavour, table = flavour_of("gpt-neox"), option_table("gpt-neox")
    governed = {row.option for row in flavour.rows if not row.free}
    said = [one for one in carrying.said.values() if one.given and one.value is not None]
    passed: list[str] = []
    place = None
    for one in said:
        head = one.option.partition(".")[0]
        option = table.find(one.option)
        if one.option in carrying.used | governed or option is None or option.derived:
            continue
        text = option.text(one.value)
        overruled, change = flavour.overruled(one.option), change_by(flavour, Given(0, option, (text,)))
        if overruled is not None:
            carrying.leave(one, f"a recipe says `{overruled}`")
        elif change is not None:
            carrying.leave_change(one, change)
        elif head not in _REASONS or (head == "fp16" and carrying.value("fp16.enabled") is True):
            passed.append(f"{one.option}={text}")
            place = place or one.place
    if passed:
        carrying.derive("external.arguments", passed, "passed on as they are", place)


def differences(carrying: NeoxCarrying, program: Program) -> Iterator[Left]:
    """Yield what the plan's configuration has otherwise, or not at all."""
    flavour = flavour_of("gpt-neox")
    ours = dict(_flat(program.configuration or {}, ""))
    paths = {row.option for row in flavour.rows if row.base} | carrying.used
    listed = {one.key for one in carrying.out.left}
    for key, one in carrying.said.items():
        if key in paths or key in listed or not (one.given or key in _MATTERS):
            continue
        # What neither side has otherwise than the program's own default is the same to both.
        usual = neox_keys()[key].default if key in neox_keys() else None
        if ours.get(key, usual) == one.value:
            continue
        why = next((_REASONS[head] for head in (key, key.partition(".")[0]) if head in _REASONS), None)
        if why is None:
            why = (
                f"the recipe's run has {shown(ours[key])}" if key in ours else "the program's default applies"
            )
        yield Left(key, shown(one.value), why, one.place)


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
