"""Joins the files of `dump` to whole tensors. Needs torch and safetensors only."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import torch
from safetensors import safe_open

from dsforge.base.errors import DsforgeError, Place
from dsforge.train import slicing


def gather(folder: Path) -> dict[str, torch.Tensor]:
    """Return {global name: full tensor without padding}; DsforgeError if copies of a tied weight differ."""
    files = sorted(folder.glob("stage-*-shard-*.safetensors"))
    if not files:
        raise DsforgeError("DSF340", "holds no dumped parameters", Place(file=str(folder)))
    shards: dict[tuple[str, int], dict[int, torch.Tensor]] = defaultdict(dict)
    cuts = {}
    for path in files:
        with safe_open(path, "pt") as stream:
            about = json.loads(stream.metadata()["dsforge"])
            cuts.update(about["parameters"])
            for name in stream.keys():  # noqa: SIM118 - an open safetensors file is no mapping
                shards[name, about["stage"]][about["shard"]] = stream.get_tensor(name)
    whole: dict[str, torch.Tensor] = {}
    for (name, stage), parts in sorted(shards.items()):
        cut = cuts[name]
        ordered = [parts[number] for number in sorted(parts)]
        full = slicing.join(ordered, cut["partition_dim"], cut["partition_stride"])[: cut["shape"][0]]
        assert list(full.shape) == cut["shape"], f"{name} has shape {list(full.shape)}, not {cut['shape']}"
        if name in whole and not torch.equal(whole[name], full):
            message = f"stage {stage} holds another {name} than the stage before it"
            raise DsforgeError("DSF341", message, Place(file=str(folder)))
        whole[name] = full.contiguous()
    return whole
