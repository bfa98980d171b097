"""The cells of the matrix: layouts that `verify` holds against one process, a row each.

A word of a cell is a column below, or any other key of a recipe, with its value. Each is a row of
docs/reference/verified.md, written by `pytest tests/e2e/test_verify.py -k NAME --update-matrix`.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "trainer": ("forge", ("trainer",)),
    "arch": ("gpt", ("model.arch",)),
    "tied": ("true", ("model.tied",)),
    "tp": ("1", ("parallel.tp",)),
    "pp": ("1", ("parallel.pp",)),
    "dp": ("1", ("parallel.dp",)),
    "cp": ("1", ("parallel.cp",)),
    "ep": ("1", ("parallel.ep",)),
    "vp": ("1", ("parallel.vp",)),
    "zero": ("1", ("parallel.zero",)),
    "schedule": ("1f1b", ("parallel.schedule",)),
    "sequence_parallel": ("false", ("parallel.sequence_parallel",)),
    "offload_optimizer": ("none", ("offload.optimizer",)),
    "offload_parameters": ("none", ("offload.parameters",)),
    "precision": ("fp32", ("train.precision",)),
    "recompute": ("none", ("train.recompute",)),
    "recompute_every": ("1", ("train.recompute_every",)),
    "dropout": ("0.0", ("train.dropout", "train.attention_dropout")),
}
"""By name: what a cell has that does not say it, and the keys of the recipe that it sets."""


@dataclass(frozen=True)
class Cell:
    """One layout. `proves`: what no other cell shows."""

    name: str
    proves: str
    words: str

    def _said(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.words.split())

    @property
    def columns(self) -> dict[str, str]:
        """The value in every column."""
        said = self._said()
        return {column: said.get(column, default) for column, (default, _) in COLUMNS.items()}

    @property
    def further(self) -> dict[str, str]:
        """Keys of the recipe besides."""
        return {key: value for key, value in self._said().items() if key not in COLUMNS}

    def changes(self) -> list[str]:
        """Return the cell as changes of a recipe."""
        columns = self.columns
        ranks = int(columns["tp"]) * int(columns["pp"]) * int(columns["cp"]) * int(columns["dp"])
        keys = {key: columns[column] for column, (_, keys) in COLUMNS.items() for key in keys}
        # Fewer key-value heads than heads where the family may have them.
        shape = {
            "cluster.gpus_per_node": str(ranks),
            "model.kv_heads": "4" if columns["arch"] in ("gpt", "gpt-neox") else "2",
        }
        return [f"{key}={value}" for key, value in {**shape, **keys, **self.further}.items()]


# A rank's half of a matrix is the megabyte that DeepSpeed swaps at least.
_ON_DISK = (
    "dp=2 zero=3 offload_optimizer=nvme offload_parameters=nvme offload.path=disk"
    " model.layers=1 model.hidden=128 model.ffn_hidden=4096 model.vocab=256"
)
_BALANCED = "tied=false train.balance_loss=0.05 model.experts="
_QWEN3_MOE = f'arch=qwen3 {_BALANCED}{{"count":4,"active":2,"ffn_hidden":96,"dense_layers":[1]}}'
_MIXTRAL = f'arch=mixtral {_BALANCED}{{"count":4,"active":2,"ffn_hidden":96,"dense_layers":[1,3]}}'

CELLS = (
    Cell("forge-dp", "replicas that keep every state", "dp=2 zero=0 arch=llama tied=false"),
    Cell("forge-zero-1", "module with dropout, recomputed", "dp=2 recompute=full dropout=0.1"),
    Cell(
        "forge-zero-2",
        "gradients shared out, optimizer on the CPU",
        "dp=2 zero=2 arch=llama tied=false offload_optimizer=cpu",
    ),
    Cell(
        "forge-zero-3",
        "weights shared out beside tensor parallelism with split sequences",
        "tp=2 dp=2 zero=3 recompute=full sequence_parallel=true",
    ),
    Cell(
        "forge-disk",
        "weights and states on a disk, recomputed",
        f"{_ON_DISK} recompute=full",
    ),
    # Of this seed the gradients are calm: with another the reference runs three times, at ever lower rates.
    Cell("forge-tp", "tensor parallelism alone, dropout agreed", "tp=2 arch=llama dropout=0.1 train.seed=4"),
    Cell("forge-pp", "a pipeline alone, attention recomputed", "pp=2 recompute=selective dropout=0.1"),
    Cell(
        "forge-gpipe",
        "GPipe, split sequences and a tied weight on two stages, blocks of several layers recomputed",
        "tp=2 pp=2 dp=2 schedule=gpipe sequence_parallel=true recompute=full recompute_every=2 dropout=0.1",
    ),
    Cell(
        "forge-gpt-neox",
        "attention and MLP side by side, a part of each head turned",
        "tp=2 pp=2 arch=gpt-neox tied=false dropout=0.1 recompute=full",
    ),
    Cell(
        "forge-2x2x2",
        "blocks of several layers recomputed across stages, dropout",
        "tp=2 pp=2 dp=2 arch=llama tied=false recompute=full recompute_every=2 dropout=0.1",
    ),
    Cell(
        "forge-gemma",
        "an embedding scaled and tied on two stages, norms that add 1",
        "pp=2 arch=gemma train.seed=4",
    ),
    Cell("forge-bf16", "bf16 in a pipeline", "tp=2 pp=2 arch=llama precision=bf16 recompute=full"),
    Cell("transformers-zero-1", "GPT-2 of Hugging Face, optimizer shared out", "trainer=transformers dp=2"),
    Cell(
        "transformers-zero-2",
        "Llama of Hugging Face, gradients shared out, attention recomputed",
        "trainer=transformers dp=2 zero=2 arch=llama tied=false recompute=selective",
    ),
    Cell(
        "transformers-zero-3",
        "weights shared out, blocks of several layers recomputed, tied",
        "trainer=transformers dp=2 zero=3 arch=llama recompute=full recompute_every=2",
    ),
    Cell(
        "transformers-disk",
        "weights and states of Hugging Face's layers on a disk",
        f"{_ON_DISK} trainer=transformers",
    ),
    Cell(
        "transformers-autotp",
        "layers split by AutoTP",
        "trainer=transformers tp=2 dp=2 zero=2 arch=llama tied=false",
    ),
    Cell(
        "transformers-experts",
        "Qwen3-MoE of Hugging Face with a dense layer, weights shared out, experts kept balanced",
        f"trainer=transformers dp=2 zero=3 recompute=full {_QWEN3_MOE}",
    ),
    Cell("fsdp-zero-2", "weights that stay until their backward", "trainer=fsdp dp=2 zero=2"),
    Cell(
        "fsdp-zero-3",
        "weights that leave after their forward, on the CPU, recomputed",
        "trainer=fsdp dp=2 zero=3 arch=llama recompute=full offload_optimizer=cpu offload_parameters=cpu",
    ),
    Cell(
        "fsdp-gpt-neox",
        "GPT-NeoX of Hugging Face, SGD",
        "trainer=fsdp dp=2 zero=3 arch=gpt-neox tied=false optimizer.type=sgd optimizer.lr=1.0",
    ),
    Cell(
        "fsdp-experts",
        "experts shared out with all weights, kept balanced, attention recomputed",
        f"trainer=fsdp dp=2 zero=3 recompute=selective {_QWEN3_MOE}",
    ),
    Cell("fsdp-fp16", "fp16 under a loss scale of our own", "trainer=fsdp dp=2 zero=2 precision=fp16"),
    Cell("ddp", "whole replicas, recomputed", "trainer=ddp dp=2 zero=0 arch=llama tied=false recompute=full"),
    Cell(
        "ddp-mistral",
        "a window that sequences leave, attention recomputed",
        "trainer=ddp dp=2 zero=0 arch=llama model.window=20 recompute=selective",
    ),
    Cell(
        "ddp-experts", "whole replicas of all experts, kept balanced", f"trainer=ddp dp=2 zero=0 {_QWEN3_MOE}"
    ),
    Cell(
        "megatron-core-interleaved",
        "virtual stages, split sequences, distributed optimizer, tied, dropout",
        "trainer=megatron-core tp=2 pp=2 dp=2 vp=2 schedule=interleaved sequence_parallel=true recompute=full"
        " dropout=0.1 parallel.partition=uniform",
    ),
    Cell(
        "megatron-core-1f1b",
        "a pipeline alone with its plain optimizer, a tied weight on two stages",
        "trainer=megatron-core pp=2 zero=0",
    ),
    Cell(
        "megatron-core-fp16",
        "fp16 on two stages with a plain optimizer",
        "trainer=megatron-core pp=2 zero=0 precision=fp16",
    ),
    Cell(
        "megatron-core-parts",
        "parts of sequences on two stages, a tied weight on both, dropout, all recomputed",
        "trainer=megatron-core pp=2 cp=2 zero=0 recompute=full dropout=0.1",
    ),
    Cell(
        "megatron-core-experts",
        "experts shared out over replicas of both stages, kept balanced, blocks of several layers recomputed",
        f"trainer=megatron-core pp=2 dp=2 ep=2 recompute=full recompute_every=2 {_MIXTRAL}",
    ),
    Cell(
        "megatron-core-ep",
        "expert parallelism alone, attention recomputed",
        f"trainer=megatron-core dp=2 ep=2 recompute=selective {_MIXTRAL}",
    ),
    Cell(
        "megatron-core-tp-ep",
        "experts shared out over shards that split sequences and layers",
        f"trainer=megatron-core tp=2 dp=2 ep=2 sequence_parallel=true {_MIXTRAL}",
    ),
    Cell(
        "megatron-core-experts-bf16",
        "experts in bf16, where rounding sends tokens to other ones",
        f"trainer=megatron-core dp=2 ep=2 precision=bf16 {_MIXTRAL}",
    ),
    Cell(
        "megatron-core-parts-experts",
        "experts shared out over parts of sequences and shards of these, attention recomputed",
        f"trainer=megatron-core tp=2 cp=2 ep=4 sequence_parallel=true recompute=selective {_MIXTRAL}",
    ),
)
