"""What both peers are given: shape and batch of the plan, the token file, where to write a line a step."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch


@dataclass
class Job:
    """One training job; `batch` draws random pieces of the token stream."""

    plan: dict
    tokens: np.memmap
    out: Path

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens and labels [micro, seq_len]."""
        micro, seq = self.plan["batch"]["micro"], self.plan["batch"]["seq_len"]
        starts = torch.randint(len(self.tokens) - seq - 1, (micro,))
        rows = np.stack([self.tokens[start : start + seq + 1].astype(np.int64) for start in starts.tolist()])
        samples = torch.from_numpy(rows)
        return samples[:, :-1].contiguous(), samples[:, 1:].contiguous()

    def record(self, loss: float) -> None:
        """Write a finished step."""
        with self.out.open("a") as stream:
            stream.write(json.dumps({"loss": loss, "time": time.time()}) + "\n")


def read_job() -> tuple[Job, argparse.Namespace]:
    """Return the job that the command line names, and the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--token-type", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ds-config", type=Path)
    choice, _ = parser.parse_known_args()
    plan = json.loads(choice.plan.read_text())
    torch.manual_seed(plan["train"]["seed"])
    return Job(plan, np.memmap(choice.tokens, choice.token_type, "r"), choice.out), choice
