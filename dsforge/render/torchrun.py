"""torchrun on a node: its rank is given, never negotiated, so that ranks are where the plan puts them."""

from __future__ import annotations

MODULE = "torch.distributed.run"


def options(nodes: int, ranks_per_node: int, address: str, port: str) -> list[str]:
    """Return torchrun's options but the node's rank; ranks meet at address and port."""
    # Its other rendezvous (c10d) numbers the hosts itself; the plan has them in order.
    counts = [f"--nnodes={nodes}", f"--nproc-per-node={ranks_per_node}"]
    return [*counts, f"--master-addr={address}", f"--master-port={port}", "--max-restarts=0"]
