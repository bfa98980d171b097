"""A shell's TAB: what the scripts that `--show-completion` prints bring back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dsforge.catalog.tables import errors, hardware, models
from dsforge.rules.registry import rules
from tests.cli.test_hygiene import HEAVY
from tests.support.recipes import SMALL, write

PROFILES = "profiles: {short: {train: {steps: 5}}, wide: {parallel: {tp: 4, pp: 1}}}\n"


def _script(shell: str, environ: dict[str, str]) -> str:
    asked = {**environ, "_DSFORGE_COMPLETE": f"source_{shell}"}
    return subprocess.run(["dsforge"], env=asked, check=True, capture_output=True, text=True).stdout


def _bash(words: list[str], environ: dict[str, str], folder: Path) -> list[str]:
    """Return what bash offers for the last word, which it has broken at `=` as readline does."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"{_script('bash', environ)}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n"
        "_dsforge_completion dsforge\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    shell = ["bash", "--norc", "-c", program]
    done = subprocess.run(shell, cwd=folder, env=environ, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pl", ["plan"]),
        ("plan --prof", ["--profile"]),
        ("plan rec", []),  # files are the shell's own
        (
            "plan recipe.yaml parallel.se",
            [f"parallel.sequence_parallel={end}" for end in ("", "false", "true", "auto")],
        ),
        ("plan recipe.yaml batch.", ["batch.global=", "batch.micro=", "batch.seq_len="]),
        ("plan recipe.yaml train.seed", ["train.seed=", "train.seed=1234"]),
        ("plan recipe.yaml parallel.zero =", ["0", "1", "2", "3", "auto"]),
        ("plan recipe.yaml --set train.precision = f", ["fp32", "fp16"]),
        (
            "plan recipe.yaml a.b = c optimizer.lr_s",
            [f"optimizer.lr_schedule={end}" for end in ("", "cosine", "linear", "constant")],
        ),
        ("plan recipe.yaml nothing.like =", []),
        ("plan recipe.yaml --profile ", ["short", "wide"]),
        ("validate recipe.yaml --profile w", ["wide"]),
        ("plan missing.yaml --profile ", []),
        ("validate m", []),
        ("explain recipe.yaml parallel.s", ["parallel.schedule", "parallel.sequence_parallel"]),
        ("validate recipe.yaml mon", [f"monitor.{sink}=" for sink in ("tensorboard", "wandb", "prometheus")]),
        ("diff recipe.yaml recipe.yaml --fail-on e", ["execution"]),
        ("rule DSF12", [code for code in rules() if code.startswith("DSF12")]),
        ("rule DSF00", [code for code in errors() if code.startswith("DSF00")]),
        ("verify recipe.yaml --allow DSF1", [code for code in rules() if code.startswith("DSF1")]),
        ("presets show llama3", [name for name in models() if name.startswith("llama3")]),
        ("init --gpu a100", [name for name in hardware() if name.startswith("a100")]),
        ("plan recipe.yaml cluster.gpu = a100", [name for name in hardware() if name.startswith("a100")]),
        ("runs show ", ["latest"]),
    ],
)
def test_bash_offers(line: str, offered: list[str], dsforge: dict[str, str], tmp_path: Path):
    write(tmp_path, SMALL + PROFILES)
    found = _bash(["dsforge", *line.split(" ")], dsforge, tmp_path)
    assert found == offered


def test_bash_offers_runs(dsforge: dict[str, str], tmp_path: Path):
    for name in ("a-1", "a-2", "b-1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "state.json").write_text("{}")
    assert sorted(_bash(["dsforge", "runs", "logs", "a"], dsforge, tmp_path)) == ["a-1", "a-2"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ["dsforge", "runs", "logs", "--runs", str(tmp_path / "runs"), "b"]
    assert _bash(words, dsforge, elsewhere) == ["b-1"]


@pytest.mark.parametrize(
    ("line", "codes"), [("plan r.yaml batch.mic", (0, "batch.micro=")), ("plan r", (1, ""))]
)
def test_fish_is_told_by_exit_code_whether_to_offer_files(
    line: str, codes: tuple[int, str], dsforge: dict[str, str], tmp_path: Path
):
    assert "complete --command dsforge" in _script("fish", dsforge)
    asked = {**dsforge, "_DSFORGE_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": f"dsforge {line}"}

    def ask(action: str) -> subprocess.CompletedProcess[str]:
        environ = {**asked, "_TYPER_COMPLETE_FISH_ACTION": action}
        return subprocess.run(
            ["dsforge"], env=environ, cwd=tmp_path, check=False, capture_output=True, text=True
        )

    code, first = codes
    assert ask("is-args").returncode == code
    assert ask("get-args").stdout.partition("\t")[0].strip() == first


def test_zsh_offers_words_with_their_meaning(dsforge: dict[str, str], tmp_path: Path):
    script = _script("zsh", dsforge)
    assert script.strip().startswith("#compdef dsforge\n")
    asked = {
        **dsforge,
        "_DSFORGE_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": "dsforge plan r.yaml parallel.t",
    }
    offered = subprocess.run(
        ["dsforge"], env=asked, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert '"parallel.tp=":"Tensor-parallel degree."' in offered
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n", "-c", script], check=True)


def test_offering_loads_no_engine(dsforge: dict[str, str], tmp_path: Path):
    asked = {**dsforge, "_DSFORGE_COMPLETE": "complete_bash", "PYTHONPROFILEIMPORTTIME": "1"}
    asked |= {"COMP_WORDS": "dsforge\nplan\nr.yaml\nparallel.t", "COMP_CWORD": "3"}
    done = subprocess.run(["dsforge"], env=asked, cwd=tmp_path, check=True, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "dsforge" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_installing_writes_the_script_that_bash_reads(dsforge: dict[str, str], tmp_path: Path):
    environ = {**dsforge, "HOME": str(tmp_path)}
    shell = ["bash", "--norc", "-c", "dsforge --install-completion; echo $?"]
    done = subprocess.run(shell, env=environ, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0", done.stderr
    assert (tmp_path / ".bash_completions" / "dsforge.sh").read_text().strip() == _script(
        "bash", dsforge
    ).strip()
    assert ".bash_completions/dsforge.sh" in (tmp_path / ".bashrc").read_text()
