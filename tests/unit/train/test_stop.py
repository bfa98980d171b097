"""The listener in a process of its own, and the agreement of two ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.launch_support.bundles import REPOSITORY

_LISTENS = """
import time
from dsforge.train.stop import LISTENER
LISTENER.listen()
{then}
print("ready", flush=True)
while not LISTENER.heard:
    time.sleep(0.01)
print("heard", flush=True)
"""


def listener(then: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _LISTENS.format(then=then)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("then", "code", "said"), [("", 143, ""), ("LISTENER.defer()", 0, "heard\n")])
def test_a_request_ends_the_process_until_there_is_something_to_save(then, code, said):
    process = listener(then)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, said)


_RANK = """
import sys
import torch.distributed as dist
from dsforge.plan.types import Launch
from dsforge.train.stop import StopAgreement, StopListener
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
launch = Launch.model_construct(collective_timeout_seconds=60.0)
listener = StopListener()
agreement = StopAgreement(listener, launch)
answers = [agreement.asked_now()]
agreement.ask()
listener.heard = rank == 1  # too late for this question, in time for the next
answers += [agreement.agreed(), agreement.asked_now()]
print(answers, flush=True)
"""


def test_two_ranks_agree_although_one_was_told(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, str(rank), str(tmp_path / "meeting")],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=120)[0] for process in ranks]
    assert said == ["[False, False, True]\n"] * 2
