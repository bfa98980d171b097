"""One recipe a rule that breaks it, and where the fault stands."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.recipes import SMALL


@dataclass(frozen=True)
class Broken:
    """`changes`: replacements in the small recipe. `at`: the text that the finding must point to."""

    code: str
    changes: tuple[tuple[str, str], ...]
    at: str
    fix: str | None

    @property
    def text(self) -> str:
        text = SMALL
        for old, new in self.changes:
            assert old in text
            text = text.replace(old, new)
        return text

    @property
    def place(self) -> tuple[int, int]:
        """Line and column of the text that the finding must point to, from 1."""
        before, _, _ = self.text.partition(self.at)
        assert self.text.count(self.at) == 1, self.at
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _one(code: str, old: str, new: str, at: str, fix: str | None) -> Broken:
    return Broken(code, ((old, new),), at, fix)


_LLAMA = "arch: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176"
_MODEL = f"{{{_LLAMA}, vocab: 512}}"
_LAST = "warmup_steps: 3}"
_MEGATRON = "trainer: external\nexternal: {flavour: megatron-lm, path: x,"
_ASKED = ("parallel.tp", "parallel.pp", "parallel.zero", "batch.micro", "train.steps", "train.precision")
_SCRIPT = "trainer: external\nexternal: {{flavour: script, path: x, entry: y.py, arguments: [{}]}}".format(
    ", ".join(f'"{{{key}}}"' for key in (*_ASKED, "optimizer.lr"))
)
_PODS = "image: a, volumes: {a: /m}"
_PARALLEL = "{tp: 2, pp: 2, dp: 2, zero: 1}"
_EXPERTS = (", ffn_hidden: 176, vocab: 512", ", vocab: 512, experts: {@}")
_ON_EXPERTS = (_EXPERTS, (_PARALLEL, "{zero: 1}"), (_LAST, f"{_LAST}\ntrainer: transformers"))
_CORE = (_LAST, f"{_LAST}\ntrainer: megatron-core")

BROKEN = (
    _one("DSF101", _LLAMA, _LLAMA.replace("heads: 4, kv_heads: 2", "heads: 5"), "tp: 2", "parallel.tp=1"),
    _one("DSF102", "kv_heads: 2", "kv_heads: 1", "tp: 2", "parallel.tp=1"),
    _one("DSF103", "kv_heads: 2", "kv_heads: 3", "kv_heads", None),
    _one("DSF104", "hidden: 64,", "hidden: 66,", "hidden: 66", None),
    _one("DSF105", "hidden: 64,", "hidden: 12,", "heads: 4", None),
    _one("DSF105", "hidden: 64,", "hidden: 64, head_dim: 15,", "head_dim", None),
    _one(
        "DSF105",
        "vocab: 512}",
        "vocab: 512, rotary_fraction: 0.2}",
        "rotary_fraction",
        None,
    ),
    _one("DSF105", "vocab: 512}", "vocab: 512, rotary_fraction: 0.3}", "rotary_fraction", None),
    _one("DSF106", "ffn_hidden: 176", "ffn_hidden: 177", "tp: 2", "parallel.tp=1"),
    _one("DSF107", "layers: 4", "layers: 1", "pp: 2", "parallel.pp=1"),
    Broken(
        "DSF107",
        (("layers: 4", "layers: 5"), ("zero: 1}", "zero: 1, partition: uniform}")),
        "pp: 2",
        "parallel.partition=parameters",
    ),
    _one("DSF108", "vocab: 512", "vocab: 512, max_positions: 64", "max_positions", None),
    Broken(
        "DSF108",
        ((_LLAMA, _LLAMA.replace("llama", "gpt")), ("vocab: 512", "vocab: 512, rotary_fraction: 0.5")),
        "rotary_fraction",
        None,
    ),
    _one("DSF110", "dp: 2", "dp: 3", "dp: 3", "parallel.dp=2"),
    _one("DSF110", _PARALLEL, "{tp: 2, pp: 3, dp: auto, zero: 1}", "tp: 2", None),
    _one("DSF110", _PARALLEL, "{tp: 2, pp: 3, dp: 2, zero: 1}", "dp: 2", None),
    _one("DSF111", "global: 32", "global: 33", "global: 33", "batch.global=36"),
    _one(
        "DSF112",
        _LLAMA,
        _LLAMA.replace("llama", "gpt") + ", max_positions: 32",
        "seq_len",
        "batch.seq_len=32",
    ),
    _one("DSF113", "steps: 30", "steps: 30, tokens: 4M", "tokens", None),
    _one("DSF114", "warmup_steps: 3", "warmup_steps: 30", "warmup_steps", "optimizer.warmup_steps=3"),
    _one("DSF114", "lr: 3.0e-3", "lr: 3.0e-3, min_lr: 4.0e-3", "min_lr", "optimizer.min_lr=0.003"),
    _one("DSF115", "steps: 30", "steps: 30, eval_samples: 64", "eval_samples", "train.eval_every=3"),
    Broken(
        "DSF115",
        (
            ("steps: 30", "steps: 30, eval_every: 10"),
            ("warmup_steps: 3}", "warmup_steps: 3}\ndata: {train: data/a}"),
        ),
        "eval_every",
        "train.eval_every=0",
    ),
    _one(
        "DSF115",
        "warmup_steps: 3}",
        "warmup_steps: 3}\ndata: {train: data/a, valid: data/b}",
        "valid",
        "train.eval_every=3",
    ),
    _one(
        "DSF115",
        "steps: 30",
        "steps: 30, eval_every: 10, eval_samples: 33",
        "eval_samples",
        "train.eval_samples=64",
    ),
    _one(
        "DSF116",
        "warmup_steps: 3}",
        "warmup_steps: 3}\ndata: {train: [[1, data/a], [1, data/b], [2, ./data/a]]}",
        "[2, ./data/a]",
        None,
    ),
    Broken(
        "DSF116",
        (
            ("steps: 30", "steps: 30, eval_every: 10"),
            ("warmup_steps: 3}", "warmup_steps: 3}\ndata: {train: a, valid: [[1, b], [1, b]]}"),
        ),
        "[1, b]]",
        None,
    ),
    Broken(
        "DSF117",
        (
            ("steps: 30", "steps: 30, eval_every: 10"),
            (
                "warmup_steps: 3}",
                "warmup_steps: 3}\ndata: {train: [[1, a], [1, b]], valid: [[1, b], [1, c]]}",
            ),
        ),
        "[1, b], [1, c]",
        None,
    ),
    _one("DSF120", "zero: 1", "zero: 2", "zero: 2", "parallel.zero=1"),
    _one("DSF120", "zero: 1", "zero: 3", "zero: 3", "parallel.zero=1"),
    Broken(
        "DSF122",
        ((_PARALLEL, "{tp: 4, pp: 1, dp: 2, zero: 0}"), ("kv_heads: 2", "kv_heads: 4"), ("fp32", "bf16")),
        "zero: 0",
        "parallel.zero=1",
    ),
    Broken(
        "DSF122",
        (("gpu: cpu", "gpu: v100-sxm-32gb"), ("zero: 1", "zero: 0"), ("fp32", "fp16")),
        "zero: 0",
        "parallel.zero=1",
    ),
    Broken(
        "DSF822",
        (("gpu: cpu", "gpu: v100-sxm-32gb"), ("fp32", "bf16")),
        "precision",
        "train.precision=fp16",
    ),
    _one("DSF813", "fp32", "fp16", "precision", "train.precision=bf16"),
    _one("DSF121", "zero: 1", "zero: 0", "zero: 0", "parallel.zero=1"),
    Broken(
        "DSF130",
        (("nodes: 1, gpus_per_node: 8", "nodes: 8, gpus_per_node: 1"),),
        "tp: 2",
        "parallel.tp=1",
    ),
    _one("DSF131", "micro: 2", "micro: 4", "global: 32", None),
    _one("DSF133", "fp32", "fp32, recompute_every: 2", "recompute_every", "train.recompute_every=1"),
    _one(
        "DSF133",
        "fp32",
        "fp32, recompute: full, recompute_every: 3",
        "recompute_every",
        "train.recompute_every=2",
    ),
    Broken(
        "DSF790",
        (
            (_PARALLEL, "{zero: 1}"),
            (_LAST, f"{_LAST}\ntrainer: transformers"),
            ("fp32", "fp32, balance_loss: 0.01"),
        ),
        "balance_loss",
        "train.balance_loss=0.0",
    ),
    _one("DSF790", "fp32", "fp32, balance_over: model", "balance_over", "train.balance_over=layer"),
    Broken(
        "DSF791",
        (*_ON_EXPERTS, ("@", "count: 4, active: 5, ffn_hidden: 8")),
        "active",
        "model.experts.active=4",
    ),
    Broken(
        "DSF791",
        (*_ON_EXPERTS, ("@", "count: 4, active: 2, ffn_hidden: 8, dense_layers: [0, 4]")),
        "dense_layers",
        "model.experts.dense_layers=[0]",
    ),
    Broken(
        "DSF791",
        (*_ON_EXPERTS, ("@", "count: 4, active: 2, ffn_hidden: 8, dense_layers: [0, 1, 2, 3]")),
        "dense_layers",
        None,
    ),
    Broken(
        "DSF785",
        (_EXPERTS, _CORE, ("@", "count: 4, active: 2, ffn_hidden: 8")),
        "parallel:",
        "parallel.sequence_parallel=true",
    ),
    Broken(
        "DSF785",
        (_EXPERTS, _CORE, (_PARALLEL, "{zero: 1}"), ("@", "count: 4, active: 1, ffn_hidden: 8")),
        "model:",
        None,
    ),
    Broken(
        "DSF108",
        (*_ON_EXPERTS, ("@", "count: 4, active: 2, ffn_hidden: 8"), ("experts:", "ffn_hidden: 9, experts:")),
        "ffn_hidden: 9",
        None,
    ),
    Broken(
        "DSF134",
        (("gpu: cpu", "gpu: a100-sxm-80gb"), ("fp32", "fp32, attention_dropout: 0.1")),
        "attention_dropout",
        None,
    ),
    _one("DSF141", _MODEL, "gemma2-2b", "model", None),
    Broken(
        "DSF141",
        ((_MODEL, "mixtral-8x7b"), (_PARALLEL, "{zero: 3}")),
        "model: mixtral-8x7b",
        "trainer=transformers",
    ),
    Broken(
        "DSF141",
        (
            (_LLAMA, _LLAMA.replace("llama", "gpt")),
            (_PARALLEL, "{zero: 1}"),
            ("warmup_steps: 3}", "warmup_steps: 3}\ntrainer: transformers"),
        ),
        "model",
        None,
    ),
    Broken(
        "DSF141",
        (
            (_MODEL, "mistral-7b-v0.1"),
            ("seq_len: 64", "seq_len: 8192"),
            (_LAST, f"{_LAST}\n{_MEGATRON}}}"),
        ),
        "seq_len",
        "batch.seq_len=4096",
    ),
    _one("DSF142", _LAST, f"{_LAST}\ntrainer: external", "trainer: external", None),
    _one(
        "DSF142",
        _LAST,
        f"{_LAST}\nexternal: {{flavour: megatron-lm, path: x}}",
        "external: {",
        "trainer=external",
    ),
    _one(
        "DSF142",
        _LAST,
        f"{_LAST}\ntrainer: external\nexternal: {{flavour: script, path: x}}",
        "flavour",
        None,
    ),
    _one("DSF143", _LAST, f"{_LAST}\n{_MEGATRON} arguments: [--lr, abc]}}", "--lr", None),
    _one("DSF143", _LAST, f"{_LAST}\n{_MEGATRON} arguments: [--train-iters, 31]}}", "--train", None),
    Broken(
        "DSF144",
        (("fp32}", "fp32, seed: 0}"), (_LAST, f"{_LAST}\n{_MEGATRON}}}")),
        "seed: 0",
        None,
    ),
    *(
        Broken(
            code,
            ((_PARALLEL, f"{{{parallel}, zero: 1}}"), *changes, (_LAST, f"{_LAST}\n{_MEGATRON}}}")),
            at,
            fix,
        )
        for code, parallel, changes, at, fix in (
            ("DSF772", "pp: 2, vp: 2", (), "parallel:", "parallel.schedule=interleaved"),
            ("DSF772", "pp: 2, schedule: interleaved", (), "schedule: i", "parallel.schedule=1f1b"),
            ("DSF772", "vp: 2, schedule: interleaved", (), "vp: 2", None),
            ("DSF772", "pp: 2, vp: 4, schedule: interleaved", (), "vp: 4", "parallel.vp=2"),
            (
                "DSF772",
                "pp: 4, dp: 2, schedule: interleaved, vp: 2",
                (("layers: 4", "layers: 8"), ("global: 32", "global: 24")),
                "global: 24",
                None,
            ),
            ("DSF773", "cp: 4", (("seq_len: 64", "seq_len: 60"),), "cp: 4", "parallel.cp=2"),
            ("DSF775", "sequence_parallel: true", (), "sequence", "parallel.sequence_parallel=false"),
            (
                "DSF775",
                "tp: 2, sequence_parallel: true",
                (("seq_len: 64", "seq_len: 63"),),
                "sequence",
                "parallel.sequence_parallel=false",
            ),
        )
    ),
    *(
        Broken(
            code,
            ((_PARALLEL, f"{{pp: 2, zero: {zero}{more}}}"), (_LAST, f"{_LAST}{offload}\n{_SCRIPT}")),
            at,
            fix,
        )
        for code, zero, more, offload, at, fix in (
            ("DSF774", 1, ", ep: 2", "", "ep: 2", "parallel.ep=1"),
            ("DSF776", 1, "", "\noffload: {parameters: cpu}", "parameters: cpu", "offload.parameters=none"),
            ("DSF776", 3, "", "\noffload: {parameters: cpu}", "offload:", "offload.optimizer=cpu"),
            ("DSF776", 1, "", "\noffload: {optimizer: nvme}", "optimizer: nvme", None),
            ("DSF776", 1, "", "\noffload: {optimizer: cpu, path: /x}", "path: /x", "offload.path=null"),
        )
    ),
    *(
        Broken(
            "DSF776",
            ((_PARALLEL, parallel), (_LAST, f"{_LAST}\noffload: {{optimizer: {place}}}")),
            at,
            fix,
        )
        for parallel, place, at, fix in (
            ("{tp: 2, dp: 4, zero: 0}", "cpu", "zero: 0", "parallel.zero=1"),
            ("{tp: 2, dp: 4, zero: 2}", "nvme, path: /x", "zero: 2", "parallel.zero=3"),
            ("{pp: 2, dp: 4, zero: 1}", "nvme, path: /x", "optimizer: nvme", None),
        )
    ),
    *(
        Broken(
            "DSF805",
            (
                ("arch: llama", arch),
                (_PARALLEL, parallel),
                (_LAST, f"{_LAST}\ntrainer: transformers"),
            ),
            at,
            fix,
        )
        for arch, parallel, at, fix in (
            ("arch: gpt", "{tp: 2, dp: 4, zero: 1}", "tp: 2", "parallel.tp=1"),
            ("arch: llama", "{tp: 2, dp: 4, zero: 3}", "zero: 3", "parallel.zero=2"),
        )
    ),
    _one("DSF806", _LAST, "warmup_steps: 3, momentum: 0.8}", "momentum", "optimizer.momentum=0.9"),
    _one("DSF806", _LAST, "warmup_steps: 3, type: sgd, eps: 1.0e-6}", "eps: 1", "optimizer.eps=1e-08"),
    _one("DSF806", _LAST, "warmup_steps: 3, type: lion, eps: 1.0e-6}", "eps: 1", "optimizer.eps=1e-08"),
    Broken(
        "DSF780",
        ((_PARALLEL, "{dp: 8, zero: 3}"), (_LAST, f"{_LAST}\noffload: {{optimizer: cpu}}\ntrainer: fsdp")),
        "offload:",
        "offload.parameters=cpu",
    ),
    Broken(
        "DSF776",
        (
            (_PARALLEL, "{dp: 8, zero: 2}"),
            (_LAST, f"{_LAST}\noffload: {{optimizer: cpu, parameters: cpu}}\ntrainer: fsdp"),
        ),
        "parameters: cpu",
        "parallel.zero=3",
    ),
    _one("DSF145", _LAST, f"{_LAST}\n{_SCRIPT}", "warmup_steps", None),
    _one("DSF150", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {RANK: '0'}}", "RANK", None),
    _one("DSF150", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {UID: '0'}}", "UID", None),
    _one(
        "DSF150", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {dsforge_here: x}}", "dsforge_h", None
    ),
    _one("DSF150", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env_from: [RANK]}", "RANK", None),
    _one(
        "DSF150",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {env_from: [HF_X], env: {HF_X: a}}",
        "HF_X: a",
        None,
    ),
    _one(
        "DSF151", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {OPENAI_KEY: x}}", "OPENAI_KEY", None
    ),
    _one("DSF151", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {HF_TOKEN: x}}", "HF_TOKEN", None),
    Broken(
        "DSF152",
        (
            ("gpu: cpu", "gpu: a100-sxm-80gb"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {NCCL_P2P_DISABLE: '1'}}"),
        ),
        "NCCL_P2P_DISABLE",
        None,
    ),
    Broken(
        "DSF155",
        (
            ("nodes: 1, gpus_per_node: 8", "nodes: 2, gpus_per_node: 4"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {launcher: local}"),
        ),
        "launcher: local",
        "launch.launcher=slurm",
    ),
    Broken(
        "DSF155",
        (
            ("nodes: 1, gpus_per_node: 8, gpu: cpu", "nodes: 2, gpus_per_node: 4, gpu: cpu, hostfile: h"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {launcher: local}"),
        ),
        "launcher: local",
        "launch.launcher=pdsh",
    ),
    _one(
        "DSF155",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {launcher: pdsh}",
        "launcher: pdsh",
        "launch.launcher=slurm",
    ),
    _one(
        "DSF155",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {launcher: openmpi}",
        "launcher: openmpi",
        "launch.launcher=slurm",
    ),
    _one(
        "DSF720",
        "gpu: cpu}",
        "gpu: cpu, spares: 1}\nlaunch: {restarts: 1}",
        "spares: 1",
        "cluster.spares=null",
    ),
    _one(
        "DSF720",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {restarts: 1, shrink: true}",
        "shrink: true",
        "launch.shrink=null",
    ),
    Broken(
        "DSF720",
        (
            ("gpu: cpu", "gpu: cpu, hostfile: h, spares: 1"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {launcher: ssh}"),
        ),
        "spares: 1",
        "launch.restarts=3",
    ),
    *(
        _one("DSF720", _LAST, f"{_LAST}\nlaunch: {{{launch}}}", launch, "launch.restarts=3")
        for launch in ("restart_window: 1h", "restart_backoff: 5s", "restart_backoff: 0")
    ),
    _one("DSF762", "gpu: cpu", "gpu: cpu, shape: aws-p6", "shape: aws", None),
    _one(
        "DSF762",
        "gpu: cpu",
        "gpu: a100-sxm-40gb, shape: aws-p5.48xlarge",
        "gpu: a100",
        "cluster.gpu=h100-sxm-80gb",
    ),
    _one("DSF760", "gpu: cpu", "gpu: gaudi-3-128gb", "gpu: gaudi", None),
    _one("DSF761", "gpu: cpu", "gpu: mi300x-192gb", "gpu: mi300x", None),
    _one("DSF155", "gpu: cpu", "gpu: cpu, include: h1", "include: h1", "cluster.include=null"),
    _one("DSF155", "gpu: cpu", "gpu: cpu, exclude: h1", "exclude: h1", "cluster.exclude=null"),
    Broken(
        "DSF155",
        (
            ("nodes: 1, gpus_per_node: 8, gpu: cpu", "nodes: 1025, gpus_per_node: 4, gpu: cpu, hostfile: h"),
            (_PARALLEL, "{tp: 2, pp: 2, zero: 1}"),
            ("global: 32", "global: 2050"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {launcher: pdsh}"),
        ),
        "launcher: pdsh",
        "launch.launcher=ssh",
    ),
    Broken(
        "DSF155",
        (
            ("gpu: cpu", "gpu: cpu, hostfile: h"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {launcher: slurm}"),
        ),
        "hostfile",
        "cluster.hostfile=null",
    ),
    _one(
        "DSF730",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {rendezvous: c10d}",
        "rendezvous",
        "launch.rendezvous=static",
    ),
    _one("DSF731", "gpu: cpu", "gpu: cpu, fabric: ethernet", "fabric: ethernet", "cluster.fabric=auto"),
    Broken(
        "DSF731",
        (
            ("gpu: cpu", "gpu: a100-sxm-80gb, fabric: roce"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {NCCL_NET: Socket}}"),
        ),
        "fabric: roce",
        "cluster.fabric=auto",
    ),
    Broken(
        "DSF733",
        (
            ("gpu: cpu", "gpu: cpu, interface: eth0"),
            ("warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {GLOO_SOCKET_IFNAME: lo}}"),
        ),
        "interface: eth0",
        "cluster.interface=null",
    ),
    _one(
        "DSF156",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {slurm: {partition: a}}",
        "partition",
        "launch.launcher=slurm",
    ),
    _one(
        "DSF156",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {launcher: slurm, slurm: {time: 5m}}",
        "time: 5m",
        None,
    ),
    _one(
        "DSF156",
        "warmup_steps: 3}",
        "warmup_steps: 3}\nlaunch: {launcher: slurm, slurm: {notice: 1m}}",
        "notice: 1m",
        "launch.stop_timeout=60s",
    ),
    *(
        _one("DSF700", "warmup_steps: 3}", f"warmup_steps: 3}}\nlaunch: {{{launch}}}", marker, fix)
        for launch, marker, fix in (
            ("kubernetes: {image: a, volumes: {a: /m}}", "image: a", "launch.launcher=kubernetes"),
            ("launcher: kubernetes, kubernetes: {volumes: {a: /mnt}}", "kubernetes: {", None),
            ("launcher: kubernetes, kubernetes: {image: a}", "kubernetes: {", None),
            (
                "launcher: kubernetes, kubernetes: {image: a, volumes: {a: /mnt, b: /mnt}}",
                "volumes: {",
                None,
            ),
            (
                f"launcher: kubernetes, kubernetes: {{{_PODS}, resources: {{gpus: '1'}}}}",
                "resources: {",
                None,
            ),
            (
                f"launcher: kubernetes, kubernetes: {{{_PODS}, resources: {{nvidia.com/gpu: '1'}}}}",
                "resources: {",
                None,
            ),
            (
                f"launcher: kubernetes, kubernetes: {{{_PODS}, labels: {{dsforge/job: a}}}}",
                "labels: {",
                None,
            ),
        )
    ),
    *(
        _one("DSF246", "warmup_steps: 3}", f"warmup_steps: 3}}\nlaunch: {{{launch}}}", marker, fix)
        for launch, marker, fix in (
            ("pbs: {queue: a}", "queue: a", "launch.launcher=pbs"),
            ("launcher: pbs, pbs: {time: 5m}", "time: 5m", None),
            ("launcher: pbs, pbs: {time: 1h, notice: 1m}", "notice: 1m", "launch.stop_timeout=60s"),
            ("launcher: pbs, env_from: [A], pbs: {rerun: true}", "rerun: true", "launch.pbs.rerun=false"),
        )
    ),
    _one("DSF150", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {SLURM_X: a}}", "SLURM_X", None),
    _one("DSF150", "warmup_steps: 3}", "warmup_steps: 3}\nlaunch: {env: {PMI_RANK: a}}", "PMI_RANK", None),
    _one("DSF794", _PARALLEL, "{schedule: gpipe}", "schedule", "parallel.schedule=1f1b"),
    _one("DSF812", _PARALLEL, "{pp: 1, partition: measured}", "partition: measured", None),
    _one("DSF795", _PARALLEL, "{pp: 2, partition: measured}", "partition: measured", None),
    Broken(
        "DSF160",
        (
            (_MODEL, "13B"),
            ("gpu: cpu", "gpu: a100-sxm-40gb"),
            (_PARALLEL, "{zero: 0}"),
        ),
        "gpu: a100",
        None,
    ),
    Broken(
        "DSF811",
        ((_PARALLEL, "{dp: 8, zero: 3}"), ("steps: 30", "steps: 30, checks: {parameters_every: 5}")),
        "parameters_every",
        "train.checks.parameters_every=0",
    ),
    *(
        _one("DSF811", "steps: 30", f"steps: 30, checks: {{{key}: 31}}", key, f"train.checks.{key}=30")
        for key in ("gradients_every", "parameters_every")
    ),
    Broken(
        "DSF801",
        (
            (
                _LLAMA,
                _LLAMA.replace("hidden: 64", "hidden: 72").replace("ffn_hidden: 176", "ffn_hidden: 60000"),
            ),
            (_PARALLEL, "{tp: 2, dp: 4, zero: 3}"),
            (_LAST, f"{_LAST}\noffload: {{optimizer: nvme, path: /x}}"),
        ),
        "optimizer: nvme",
        "offload.optimizer=cpu",
    ),
    Broken(
        "DSF800",
        (
            (_PARALLEL, "{tp: 2, dp: 1}"),
            ("gpus_per_node: 8", "gpus_per_node: 2"),
            (_LAST, f"{_LAST}\noffload: {{optimizer: nvme, parameters: nvme, path: /x}}"),
        ),
        "parameters: nvme",
        "offload.parameters=cpu",
    ),
    Broken(
        "DSF811",
        (
            (_PARALLEL, "{dp: 1}"),
            ("gpus_per_node: 8", "gpus_per_node: 1"),
            ("steps: 30", "steps: 30, checks: {gradients_every: 5}"),
        ),
        "gradients_every",
        "train.checks.gradients_every=0",
    ),
    Broken(  # replicas hold parts: shards of TP would hold copies of what layers do not split
        "DSF811",
        (
            _CORE,
            (_PARALLEL, "{dp: 4, cp: 2, zero: 1}"),
            ("steps: 30", "steps: 30, checks: {gradients_every: 5}"),
        ),
        "gradients_every",
        None,
    ),
)

NOT_HONOURED = {
    "parallel.vp": "2",
    "parallel.cp": "2",
    "parallel.ep": "2",
    "parallel.schedule": "interleaved",
    "train.balance_loss": "0.01",
    "checkpoint.init": "weights",
    "monitor.wandb": "true",
    "monitor.prometheus": "true",
}
"""For each key that the forge trainer limits, a value that it does not take."""
