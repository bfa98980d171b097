"""A Megatron command line as what a recipe carries of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.catalog.engines.flavours import Flavour, flavour_of
from dsforge.external.changes import change_by
from dsforge.external.values import RECIPE_KEYS
from dsforge.foreign.imports import Left
from dsforge.foreign.programs.arguments import Arguments
from dsforge.foreign.programs.backwards import is_constant, unknown
from dsforge.foreign.programs.carrying import OPEN, Carrying
from dsforge.foreign.programs.rows import check_rows
from dsforge.foreign.programs.said import Said, Solved, solve
from dsforge.foreign.programs.shape import carry_shape

_PLAIN = (
    *("parallel.tp", "parallel.pp", "parallel.zero", "parallel.sequence_parallel", "batch.micro"),
    *("batch.seq_len", "train.precision", "train.seed", "train.dropout", "train.attention_dropout"),
    *("train.recompute_every", "optimizer.type", "optimizer.lr", "optimizer.min_lr"),
    *("optimizer.lr_schedule", "optimizer.weight_decay", "optimizer.eps", "optimizer.grad_clip"),
    "monitor.tensorboard",
)
_LAYOUTS = {
    "--ds-sequence-parallel-size": "parallel.cp",
    "--context-parallel-size": "parallel.cp",
    "--moe-expert-parallel-size": "parallel.ep",
    "--expert-model-parallel-size": "parallel.ep",
}
_TOKENIZER = (
    *("--tokenizer-type", "--vocab-file", "--merge-file", "--tokenizer-model", "--vocab-extra-ids"),
    *("--vocab-size", "--null-tokenizer-eod-id", "--data-impl"),
)
_DATA = ("--data-path", "--train-data-path", "--valid-data-path")
GPT2_VOCABULARY = 50257
"""Tokens of GPT-2's byte-pair encoding (Radford et al. 2019, sec. 2.2)."""


class MegatronCarrying(Carrying):
    """The import of one command line."""

    def __init__(self, arguments: Arguments, given: Mapping[str, Any], replicas: int | None) -> None:
        super().__init__(given)
        self.arguments = arguments
        self.replicas = replicas
        self.flavour: Flavour = flavour_of(arguments.flavour)
        self.said = arguments.by_option()
        self.found = solve(self.flavour, self.said)

    def option(self, name: str) -> Said | None:
        """Return what is said by an option, None where the program has no such option or nothing is said."""
        one = self.said.get(name)
        return one if one is not None and one.value is not None else None


def carry_megatron(
    arguments: Arguments, file: str, *, given: Mapping[str, Any], replicas: int | None
) -> MegatronCarrying:
    """Return what a recipe carries of a command line, what is passed on, what not, and what must be given."""
    carrying = MegatronCarrying(arguments, given, replicas)
    _ask_for_open(carrying)
    carrying.derive("trainer", "external", f"a command line of {arguments.flavour}")
    carrying.derive("external.flavour", arguments.flavour, "its options")
    found = _mended(carrying)
    carry_shape(carrying, found, file)
    _vocabulary(carrying)
    for key in _PLAIN:
        carrying.solved(key, found.get(key))
    _layout(carrying)
    _batch(carrying)
    _length(carrying)
    _recompute(carrying)
    _betas(carrying)
    _data(carrying)
    _validation(carrying)
    _checkpoints(carrying)
    vocab = carrying.out.value("model.vocab")
    check_rows(arguments.flavour, carrying.said, carrying.found, vocab, given)
    _timeout(carrying)
    _pass_on(carrying)
    return carrying


def _ask_for_open(carrying: MegatronCarrying) -> None:
    """Ask for what an option leaves to the running script."""
    names = {
        row.option: unknown(row.value)
        for row in carrying.flavour.rows
        if row.value is not None and not is_constant(row.value)
    }
    constant = {row.option for row in carrying.flavour.rows if row.value is not None} - set(names)
    for one in carrying.arguments.said.values():
        if not one.is_open or one.option in _DATA or one.option in constant - {"--load", "--save"}:
            continue
        name = names.get(one.option)
        if name is not None and one.option != "--load":
            carrying.need(RECIPE_KEYS.get(name, name), one, f"`{one.option}` is {OPEN}")
            carrying.used.add(one.option)
        else:
            carrying.leave(one, OPEN)
    for word in carrying.arguments.loose:
        place = carrying.arguments.lines.place(word.at)
        carrying.out.left.append(Left(str(word), "", f"options that are {OPEN}", place))


def _mended(carrying: MegatronCarrying) -> dict[str, Solved]:
    """Return what was solved, without what the program itself does not look at."""
    found = dict(carrying.found)
    grouped = carrying.option("--group-query-attention")
    if grouped is not None and grouped.value is False and "model.kv_heads" in found:
        dropped = found.pop("model.kv_heads").said
        if dropped.given:
            carrying.leave(dropped, "not looked at without --group-query-attention")
        carrying.used.add(dropped.option)
    steps = found.get("train.steps")
    if steps is not None and steps.said.option != "--train-iters":
        del found["train.steps"]
    return found


def _vocabulary(carrying: MegatronCarrying) -> None:
    kind, size = carrying.option("--tokenizer-type"), carrying.found.get("model.vocab")
    for name in _TOKENIZER:
        carrying.used.add(name)
    if "model" in carrying.given:
        return
    null = kind is not None and kind.value == "NullTokenizer"
    if kind is not None and kind.given and not null:
        why = "data are tokens already; the program needs the vocabulary's size alone, which is model.vocab"
        carrying.leave(kind, why)
    if size is not None and size.said.given:
        counted = size.said.value if not null else size.value
        carrying.carry("model.vocab", counted, size.said)
    elif kind is not None and kind.value == "GPT2BPETokenizer":
        carrying.derive("model.vocab", GPT2_VOCABULARY, "the vocabulary of GPT-2's tokenizer")
    else:
        named = kind if kind is not None and kind.given else carrying.option("--vocab-file")
        carrying.need("model.vocab", named, "the tokenizer's size does not stand in the file")


def _layout(carrying: MegatronCarrying) -> None:
    for name, key in _LAYOUTS.items():
        one = carrying.option(name)
        if one is not None and one.given and one.value != 1:
            carrying.carry(key, one.value, one)
        elif one is not None:
            carrying.used.add(name)
    per_stage = carrying.option("--num-layers-per-virtual-pipeline-stage")
    layers, pp = carrying.found.get("model.layers"), carrying.found.get("parallel.pp")
    if per_stage is not None and per_stage.given and layers is not None and pp is not None:
        parts = pp.value * per_stage.value
        if parts > 0 and layers.value % parts == 0:
            carrying.carry("parallel.vp", layers.value // parts, per_stage)
            carrying.derive("parallel.schedule", "interleaved", "virtual stages", per_stage.place)
        else:
            why = f"{layers.value} layers are no whole number of virtual stages"
            carrying.need("parallel.vp", per_stage, why)
    stages = carrying.option("--num-virtual-stages-per-pipeline-rank")
    if stages is not None and stages.given:
        carrying.carry("parallel.vp", stages.value, stages)
        carrying.derive("parallel.schedule", "interleaved", "virtual stages", stages.place)


def _global(carrying: MegatronCarrying) -> int | None:
    """Return the samples of a step, from the options or from what is given beside them."""
    given = carrying.given.get("batch.global")
    size = carrying.found.get("batch.global_size")
    if isinstance(given, int):
        return given
    if size is not None:
        return int(size.value)
    micro = carrying.found.get("batch.micro")
    return micro.value * carrying.replicas if micro is not None and carrying.replicas else None


def _batch(carrying: MegatronCarrying) -> None:
    size = carrying.found.get("batch.global_size")
    total = _global(carrying)
    if size is not None:
        carrying.carry("batch.global", size.value, size.said)
    elif total is not None and "batch.global" not in carrying.given:
        carrying.derive("batch.global", total, f"one micro-batch on each of {carrying.replicas} replicas")
    if (ramp := carrying.option("--rampup-batch-size")) is not None and ramp.given:
        carrying.leave(ramp, "a recipe trains with one batch size from the first step")


def _length(carrying: MegatronCarrying) -> None:
    """Carry the number of steps and those of warm-up, which may be said in samples or as a share."""
    total = _global(carrying)
    steps: int | None = None
    iters, samples = carrying.option("--train-iters"), carrying.option("--train-samples")
    tokens = carrying.option("--train-tokens")
    if iters is not None and iters.given:
        steps = iters.value
        carrying.carry("train.steps", steps, iters)
    elif samples is not None and samples.given and total:
        steps = samples.value // total
        words = f"{samples.value} samples / {total} a step"
        carrying.derive("train.steps", steps, words, samples.place)
        carrying.used.add(samples.option)
    elif tokens is not None and tokens.given:
        carrying.carry("train.tokens", tokens.value, tokens)
    else:
        carrying.need("train.steps", samples, "how long to train does not follow from the file")
    decay = carrying.option("--lr-decay-iters")
    if decay is not None and decay.given and decay.value == steps:
        carrying.used.add(decay.option)
    decay_samples = carrying.option("--lr-decay-samples")
    if decay_samples is not None and decay_samples.given and total and decay_samples.value // total == steps:
        carrying.used.add(decay_samples.option)
    _warmup(carrying, total, decay.value if decay is not None and decay.given else steps)


def _warmup(carrying: MegatronCarrying, total: int | None, decay_steps: int | None) -> None:
    share, samples = carrying.option("--lr-warmup-fraction"), carrying.option("--lr-warmup-samples")
    if share is not None and share.given and decay_steps:
        words = f"{share.value} of {decay_steps} steps"
        carrying.derive("optimizer.warmup_steps", int(share.value * decay_steps), words, share.place)
        carrying.used |= {share.option, "--lr-warmup-iters"}
    elif samples is not None and samples.given and total:
        words = f"{samples.value} samples / {total} a step"
        carrying.derive("optimizer.warmup_steps", samples.value // total, words, samples.place)
        carrying.used |= {samples.option, "--lr-warmup-iters"}
    else:
        carrying.solved("optimizer.warmup_steps", carrying.found.get("optimizer.warmup_steps"))


def _recompute(carrying: MegatronCarrying) -> None:
    found = carrying.found.get("train.recompute")
    kind, short = carrying.option("--recompute-granularity"), carrying.option("--recompute-activations")
    if found is not None and found.value != "none":
        carrying.carry("train.recompute", found.value, found.said)
    elif kind is not None and kind.given:
        carrying.carry("train.recompute", kind.value, kind)
    elif short is not None and short.given:
        carrying.carry("train.recompute", "selective", short)
    for name in ("--checkpoint-activations", "--deepspeed-activation-checkpointing"):
        carrying.used.add(name)


def _betas(carrying: MegatronCarrying) -> None:
    both = [carrying.found.get(f"optimizer.betas[{index}]") for index in (0, 1)]
    one, two = both
    if one is not None and two is not None:
        place = one.said.place or two.said.place
        words = ", ".join(
            found.said.option if found.said.given else f"the default of {found.said.option}"
            for found in (one, two)
        )
        carrying.derive("optimizer.betas", [one.value, two.value], words, place)
        carrying.used |= {one.said.option, two.said.option}


def _sets(words: list[str]) -> list[list[Any]] | None:
    """Return data sets with weights: one path alone, or weight and path in turn."""
    if len(words) == 1:
        return [[1.0, words[0]]]
    if len(words) % 2:
        return None
    try:
        return [[float(weight), path] for weight, path in zip(words[::2], words[1::2], strict=True)]
    except ValueError:
        return None


def _data(carrying: MegatronCarrying) -> None:
    for key, names in (
        ("data.train", ("--data-path", "--train-data-path")),
        ("data.valid", ("--valid-data-path",)),
    ):
        one = next((one for name in names if (one := carrying.option(name)) and one.given), None)
        if one is None:
            continue
        batches = carrying.option("--eval-iters")
        if key == "data.valid" and batches is not None and batches.value == 0:
            carrying.leave(one, "nothing is validated with --eval-iters 0")
            continue
        sets = None if one.is_open else _sets(one.value)
        if sets is not None:
            carrying.carry(key, sets, one)
        else:
            carrying.used.add(one.option)
            carrying.need(
                key, one, f"`{one.option}` is {OPEN}" if one.is_open else "not weights and paths in turn"
            )
    workers = carrying.option("--num-workers")
    has_data = carrying.out.value("data.train") is not None or "data.train" in carrying.given
    if workers is not None and (has_data or workers.given):
        carrying.used.add(workers.option)
        if has_data:
            carrying.carry("data.workers", workers.value, workers)
    mock = carrying.option("--mock-data")
    if mock is not None:
        carrying.used.add(mock.option)


def _validation(carrying: MegatronCarrying) -> None:
    """Carry when validation runs, where there is a set of its own for it; a share of the data is none."""
    every, batches, split = (carrying.option(name) for name in ("--eval-interval", "--eval-iters", "--split"))
    own = carrying.out.value("data.valid") is not None or "data.valid" in carrying.given
    size = _global(carrying)
    if batches is not None and batches.value == 0:
        carrying.used |= {"--eval-interval", "--eval-iters"}
    elif own and every is not None and batches is not None and size:
        carrying.carry("train.eval_every", every.value, every)
        samples = batches.value * size
        carrying.derive("train.eval_samples", samples, f"{batches.value} batches of {size}", batches.place)
        carrying.used.add(batches.option)
    else:
        for one in (every, batches):
            if one is not None and one.given:
                carrying.leave(one, "a recipe validates on sets of its own, data.valid, not on a share")
    if split is not None and (own or _is_all(str(split.value))):
        carrying.used.add(split.option)
    elif split is not None and split.given:
        carrying.leave(split, "a recipe trains on all of data.train: name the shares as files of their own")


def _is_all(split: str) -> bool:
    first, *rest = split.replace("/", ",").split(",")
    return bool(first.strip()) and all(part.strip() in ("0", "0.0") for part in rest)


def _checkpoints(carrying: MegatronCarrying) -> None:
    save, load, every = (carrying.option(name) for name in ("--save", "--load", "--save-interval"))
    if save is not None and not save.is_open:
        carrying.carry("checkpoint.dir", save.value, save)
    if load is not None and not load.is_open:
        same = save is not None and save.value == load.value
        carrying.carry("checkpoint.resume", "auto" if same else load.value, load)
    elif load is None:
        carrying.derive("checkpoint.resume", "never", "nothing is loaded")
    if save is None:
        carrying.derive("checkpoint.at_end", False, "nothing is saved")
        carrying.used.add("--save-interval")
    elif every is not None and every.given and not every.is_open:
        steps = carrying.out.value("train.steps")
        carrying.carry("checkpoint.every_steps", 0 if every.value == steps else every.value, every)


def _timeout(carrying: MegatronCarrying) -> None:
    minutes = carrying.option("--distributed-timeout-minutes")
    if minutes is not None and minutes.given:
        carrying.carry("launch.collective_timeout", f"{minutes.value}m", minutes)
    carrying.used |= {"--distributed-timeout-minutes", "--distributed-backend"}


def _pass_on(carrying: MegatronCarrying) -> None:
    """Pass on what no key of a recipe says, as it is written."""
    arguments, flavour = carrying.arguments, carrying.flavour
    dests = {arguments.table[name].dest for name in carrying.used if name in arguments.table}
    governed = {arguments.table[row.option].dest for row in flavour.rows if not row.free}
    last = {one.option.dest: one.at for one in arguments.given}
    passed: list[str] = []
    place = None
    for one in arguments.given:
        dest, name = one.option.dest, one.option.name
        if dest in dests or dest in governed or last[dest] != one.at:
            continue
        if arguments.said[dest].is_open:
            continue
        if name in flavour.instead:
            carrying.leave(arguments.said[dest], f"a recipe says `{flavour.instead[name]}`")
            continue
        if (change := change_by(flavour, one)) is not None:
            carrying.leave_change(arguments.said[dest], change)
            continue
        passed += [name, *one.values]
        place = place or arguments.place(one.at)
    if passed:
        carrying.derive("external.arguments", passed, "passed on as they are", place)
