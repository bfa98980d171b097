"""What `dsforge launch` says of a job for Kubernetes or PBS where there is neither."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import ApiServer, free_port
from tests.support.recipes import SMALL, write

Cli = Callable[..., Any]
BYTES = SMALL.replace("vocab: 512", "vocab: 200")
"""Its built-in corpus is made in no time: nothing is learnt of the text before."""


def recipe_in(folder: Path, volume: Path) -> Path:
    launch = {
        "launcher": "kubernetes",
        "env_from": ["HF_TOKEN"],
        "kubernetes": {"image": "a", "volumes": {"shared": str(volume)}},
    }
    return write(folder, f"{BYTES}launch: {json.dumps(launch)}\n")


def test_a_dry_run_shows_the_job_object_and_asks_nobody(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    recipe = recipe_in(tmp_path, Path("/elsewhere"))
    shown = cli("launch", recipe, "--dry-run", "--json", "--runs", tmp_path / "runs")
    assert shown.code == 0, shown.err
    assert json.loads(shown.json["files"]["job.json"])["kind"] == "PyTorchJob"
    assert [refusal["code"] for refusal in shown.json["refusals"]] == ["DSF707"]
    assert "s3cret" not in shown.out
    printed = cli("launch", recipe, "--dry-run", "--runs", tmp_path / "runs")
    assert "# file bundle/job.json" in printed.out


def test_a_cluster_that_is_not_there_leaves_no_run(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBECONFIG", str(ApiServer(port=free_port()).kubeconfig(tmp_path)))
    refused = cli("launch", recipe_in(tmp_path, tmp_path), "--runs", tmp_path / "runs")
    assert refused.code == 3
    assert "error[DSF702]: the API server http://127.0.0.1:" in refused.err
    assert "Traceback" not in refused.err
    assert not (tmp_path / "runs").exists()


def test_its_hosts_cannot_be_asked_and_its_recipe_starts_here_too(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    recipe = recipe_in(tmp_path, tmp_path)
    for more in ((), ("launch.launcher=pbs", "launch.kubernetes=null")):
        refused = cli("preflight", recipe, *more, "--runs", tmp_path / "runs")
        assert refused.code == 1
        assert "DSF278" in refused.err
    here = cli("launch", recipe, "--local", "--dry-run", "--json", "--runs", tmp_path / "runs")
    assert here.code == 0, here.err
    assert "hostfile" in here.json["files"]


def test_a_dry_run_shows_what_qsub_is_given(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    recipe = write(tmp_path, f"{SMALL}launch: {{launcher: pbs, env_from: [HF_TOKEN]}}\n")
    shown = cli("launch", recipe, "--dry-run", "--json", "--runs", tmp_path / "runs")
    assert shown.code == 0, shown.err
    run = shown.json["run"]
    assert shown.json["command"] == [
        *("qsub", "-j", "oe", "-o", f"{run}/job.log", "-v", f"DSFORGE_RUN={run}"),
        f"{run}/bundle/launch.sh",
    ]
    assert {"pbs-job", "job-environment", "job-secrets"} <= set(shown.json["written"])
    told = [refusal["message"] for refusal in shown.json["refusals"]]
    assert any("qsub is not installed" in message for message in told)
    assert "s3cret" not in shown.out


def test_a_folder_of_runs_that_qsub_cannot_be_given(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("ssh", "qsub", "qstat", "qsig", "qdel", "bash"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    refused = cli(
        "launch", write(tmp_path, f"{BYTES}launch: {{launcher: pbs}}\n"), "--runs", tmp_path / "a,b"
    )
    assert refused.code == 3
    assert "error[DSF245]" in refused.err
    assert not (tmp_path / "a,b").exists()
