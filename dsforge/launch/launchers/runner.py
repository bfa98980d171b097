"""What deepspeed's own runner starts on a host (deepspeed/launcher/runner.py, multinode_runner.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def words_of_host(runner: Sequence[str], info: str, node: int | None) -> tuple[str, ...]:
    """Return the launcher of one host's ranks, `node` None where the runner has this machine alone.

    `runner`: the words that the runner is started with; `info`: all hosts as `named_world_info` has them.
    """
    options = {one: runner[runner.index(one) + 1] for one in ("--master_addr", "--master_port")}
    program = runner[runner.index("--module") + 1 :]
    return (
        *(sys.executable, "-u", "-m", "deepspeed.launcher.launch"),
        f"--world_info={info}",
        *(() if node is None else (f"--node_rank={node}",)),
        *(f"{name}={value}" for name, value in options.items()),
        *("--module", "--no_local_rank", "--enable_each_rank_log=None"),
        *(("--log_level=info",) if node is None else ()),
        *program,
    )
