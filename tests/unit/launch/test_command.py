from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.launch.command import build_command, describe_launch, safe_name
from dsforge.launch.types import LaunchRequest
from dsforge.records.run_dir import RunDir
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan

RUN = RunDir(Path("/runs/tiny-1"))


def make_request(environ=None, **plan) -> LaunchRequest:
    return LaunchRequest(
        plan=make_plan(**plan),
        bundle=make_bundle(make_plan(**plan)),
        runs_root=Path("/runs"),
        recipe_root=Path("/recipes"),
        recipe_path="tiny.yaml",
        recipe_text="",
        command=(),
        environ=environ or {"PATH": "/usr/bin"},
    )


def command(request: LaunchRequest, attempt: int = 1):
    return build_command(
        request,
        RUN,
        attempt,
        bundle=RUN.bundle,
        bash=Path("/bin/bash"),
        deepspeed=Path("/venv/bin/deepspeed"),
        master_port="20001",
        ops_dir=Path("/ops"),
    )


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("llama3-8b", "llama3-8b"),
        ("--help", "help"),
        ("../../etc", "etc"),
        ("a b/c\n", "a-b-c"),
        ("\N{GREEK SMALL LETTER ALPHA}", "run"),
        ("", "run"),
        ("..", "run"),
        ("x" * 200, "x" * 80),
    ],
)
def test_run_folders_have_safe_names(name, folder):
    assert safe_name(name) == folder


def test_what_runs_is_the_bundles_own_script():
    built = command(make_request(), attempt=2)
    assert built.argv == ("/bin/bash", "/runs/tiny-1/bundle/launch.sh")
    assert built.cwd == Path("/runs/tiny-1/attempt-2")
    assert built.environ == {
        "DSFORGE_ROOT": "/recipes",
        "DSFORGE_ATTEMPT_DIR": "/runs/tiny-1/attempt-2",
        "DSFORGE_CHECKPOINT_DIR": "/runs/tiny-1/checkpoints",
        "DSFORGE_RUN_ID": "tiny-1",
        "DSFORGE_LEASE": "/runs/tiny-1/attempt-2/lease",
        "DSFORGE_DEEPSPEED": "/venv/bin/deepspeed",
        "MASTER_PORT": "20001",
        "TORCH_EXTENSIONS_DIR": "/ops",
        "PATH": "/venv/bin:/usr/bin",
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
    }


def test_the_users_choices_stay():
    environ = {"OMP_NUM_THREADS": "8", "CUDA_VISIBLE_DEVICES": "4,5"}
    on_cpu = command(make_request(environ=environ, checkpoint_dir="ckpt")).environ
    assert on_cpu["OMP_NUM_THREADS"] == "8"
    assert on_cpu["DSFORGE_CHECKPOINT_DIR"] == "/recipes/ckpt"
    on_gpu = command(make_request(environ=environ, accelerator="cuda")).environ
    assert on_gpu["DSFORGE_VISIBLE_DEVICES"] == "4,5"
    assert not {"DS_ACCELERATOR", "OMP_NUM_THREADS"} & set(on_gpu)


def test_a_description_holds_no_secret():
    request = make_request(environ={"WANDB_API_KEY": "hush"}, env_from=("WANDB_API_KEY",))
    described = describe_launch(
        request, bash=Path("/bin/bash"), deepspeed=Path("/venv/bin/deepspeed"), ops_dir=Path("/ops")
    )
    assert described.run_dir == Path("/runs/tiny-YYYYMMDD-HHMMSS-xxxx")
    assert described.secret_names == ("WANDB_API_KEY",)
    assert "hush" not in repr(described)
    assert described.bundle_files["hostfile"] == "localhost slots=2\n"
