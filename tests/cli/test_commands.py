"""The command line's surface, and what its commands do to files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsforge.cli.main import app
from tests.support.recipes import ROOT, SMALL, write

Cli = Callable[..., Any]
BUNDLE = ["ds_config.json", "environment", "hostfile", "launch.sh", "plan.json"]
SMOKE = ROOT / "recipes" / "smoke.yaml"

# Every command with its options. Growing this table is a decision: a command exists only when it works.
SURFACE = {
    "init": "--flavour --from-accelerate --from-deepspeed --from-megatron --from-neox --gpu --gpus "
    "--gpus-per-node --model --out --schema --seq-len -o",
    "validate": "--as --data-parallel --deepspeed-version --fix --json --probe --profile --set",
    "plan": "--argument --calibration --gpus --json --objective --profile --search --set --top",
    "explain": "--json --layout --objective --profile --set",
    "diff": "--fail-on --json --profile",
    "render": "--argument --check --json --out --profile --set -o",
    "lock": "--argument --check --json --out --profile --set -o",
    "preflight": "--allow --build --exclude-failed --json --profile --quick --runs --set --timeout",
    "launch": "--allow --argument --detach --dry-run --dryrun --json --local --lock --locked --profile "
    "--runs --set",
    "smoke": "--argument --json --max-ranks --profile --runs --set --steps",
    "verify": "--allow --json --max-ranks --profile --references --runs --set --steps",
    "tune": "--fresh --json --layers --minutes --out --profile --retry --runs --search --set --steps "
    "--top -o",
    "schema": "",
    "presets list": "--json",
    "presets show": "--json",
    "rule": "--json",
    "doctor": "--json",
    "config show": "--json --origin --profile --set",
    "config migrate": "--dry-run --dryrun",
    "data prep": "--builtin --json --json-key --out --overwrite --tokenizer --vocab -o",
    "hostfile from-slurm": "--json --slots",
    "hostfile from-pbs": "--json --slots",
    "hostfile check": "--json",
    "runs list": "--json --runs",
    "runs show": "--json --runs",
    "runs logs": "--attempt --node --rank --runs",
    "runs stop": "--json --now --runs",
    "runs reap": "--json --runs",
}


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def _words(parameter: Any) -> list[str]:
    words = [*parameter.opts, *parameter.secondary_opts]
    return [word for word in words if word.startswith("-") and word not in ("--help", "-h")]


def _click_command() -> Any:
    import typer

    return typer.main.get_command(app)


def test_commands_and_options_are_the_agreed_ones():
    found = {
        name: " ".join(sorted({word for parameter in command.params for word in _words(parameter)}))
        for name, command in _commands(_click_command())
    }
    assert found == SURFACE


@pytest.mark.parametrize("command", SURFACE)
def test_help_of_each_command(cli: Cli, command: str):
    for flag in ("--help", "-h"):
        shown = cli(*command.split(), flag)
        assert shown.code == 0
        assert f"Usage: dsforge {command}" in re.sub(r"\s+", " ", shown.out)
        assert shown.err == ""


def test_help_lists_every_command_and_the_exit_codes(cli: Cli):
    shown = cli("--help")
    for command in SURFACE:
        assert re.search(rf"^  {command.split()[0]}  ", shown.out, re.MULTILINE), command
    assert "Exit codes: 0 ok, 1 findings" in shown.out
    assert re.findall(r"^(\w[\w ]*):$", shown.out, re.MULTILINE) == ["Options", "Recipe", "Run", "Look up"]
    assert "..." not in shown.out.split("Recipe:")[1], "a command's help is cut short"


@pytest.mark.parametrize("group", ["", "runs", "data", "config", "presets", "hostfile"])
def test_a_group_alone_shows_its_help_and_is_a_usage_error(cli: Cli, group: str):
    shown = cli(*group.split())
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith(f"Usage: dsforge {group}".rstrip())


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["pln"], "No such command 'pln'. Did you mean 'plan', 'explain'?", "dsforge --help"),
        (["plan"], "Missing argument", "dsforge plan --help"),
        (["plan", "recipe.yaml", "--bogus"], "No such option: --bogus", "dsforge plan --help"),
        (
            ["runs", "logs", "--rank", "many", "x"],
            "Invalid value for '--rank': ",
            "dsforge runs logs --help",
        ),
    ],
)
def test_a_usage_error_is_one_finding_as_text_and_as_json(
    cli: Cli, words: list[str], message: str, hint: str
):
    shown = cli(*words)
    assert (shown.code, shown.out) == (2, "")
    assert message in shown.err
    assert f"hint: `{hint}`" in shown.err
    if "plan" in words:
        told = cli(*words, "--json").json["error"]
        assert told["code"] == "DSF068"
        assert message in told["message"]


def test_version(cli: Cli):
    from dsforge import __version__

    assert cli("--version").out == f"dsforge {__version__}\n"


@pytest.mark.parametrize(
    ("model", "gpus", "gpu", "share"),
    [
        ("gpt2", 1, "cpu", 0.6),
        ("gpt2", 8, "a100-sxm-80gb", 0.6),
        ("gpt2-xl", 3, "v100-sxm-16gb", 0.8),  # ZeRO-3 apart, none takes less than 64 %
        ("1.3B", 8, "v100-sxm-32gb", 0.6),
        ("13B", 16, "a100-sxm-40gb", 0.6),
        ("llama3-8b", 8, "h100-sxm-80gb", 0.6),
        ("llama3-8b", 2048, "h100-sxm-80gb", 0.6),
        ("llama3-70b", 64, "h200-sxm-141gb", 0.6),
        ("175B", 1024, "a100-sxm-80gb", 0.6),
    ],
)
def test_init_writes_a_recipe_that_is_valid_and_plans(
    cli: Cli, model: str, gpus: int, gpu: str, share: float, tmp_path: Path
):
    recipe = tmp_path / "recipe.yaml"
    made = cli("init", "--model", model, "--gpus", gpus, "--gpu", gpu, "--out", recipe)
    assert made.code == 0, made.err
    valid = cli("validate", recipe)
    assert valid.code == 0, valid.err
    # Three GPUs of 16 GiB leave nothing else: what is held fits, the allocator's reserve may not.
    assert ("warning[DSF751]" in valid.err) == (gpu == "v100-sxm-16gb")
    plan = cli("plan", "--json", recipe).json
    assert plan["layout"]["world_size"] == gpus
    assert plan["layout"]["tp"] <= 8
    assert plan["model"]["name"] in (model, f"gpt3-{model.lower()}")
    fullest = max(
        sum(stage["state_bytes_per_rank"].values()) + stage["fp32_gradient_sum_bytes_per_rank"]
        for stage in plan["layout"]["stages"]
    )
    from dsforge.catalog.tables import find_hardware

    room = find_hardware(gpu).memory_bytes
    assert room is None or fullest <= share * room
    roomy = room is None or fullest <= 0.5 * room
    assert plan["train"]["recompute"] == ("none" if roomy else "full")
    assert cli("init", "--model", model, "--gpus", gpus, "--gpu", gpu).out == recipe.read_text()


def test_init_writes_the_schema_that_its_first_line_names(cli: Cli, tmp_path: Path):
    from dsforge.recipe.schema import schema_text

    recipe = tmp_path / "recipe.yaml"
    cli("init", "--out", recipe)
    assert recipe.read_text().startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    assert (tmp_path / "recipe.schema.json").read_text() == schema_text()
    (tmp_path / "recipe.schema.json").write_text("mine")
    cli("init", "--out", tmp_path / "b.yaml")
    assert (tmp_path / "recipe.schema.json").read_text() == "mine"
    cli("init", "--out", tmp_path / "jobs" / "c.yaml", "--schema", "../schemas/s.json")
    assert (tmp_path / "schemas" / "s.json").read_text() == schema_text()
    url = "https://example.org/s.json"
    cli("init", "--out", tmp_path / "other" / "d.yaml", "--schema", url)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["d.yaml"]
    assert f"$schema={url}\n" in (tmp_path / "other" / "d.yaml").read_text()
    assert cli("init", "--schema", "a b").code == 2


def test_init_does_not_overwrite(cli: Cli, tmp_path: Path):
    recipe = write(tmp_path)
    shown = cli("init", "--out", recipe)
    assert shown.code == 2
    assert recipe.read_text() == SMALL


def _tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }


def test_render_check_detects_every_kind_of_drift(cli: Cli, tmp_path: Path):
    out = tmp_path / "bundle"

    def check(*changes: str) -> tuple[int, list[str]]:
        before = _tree(tmp_path)
        shown = cli("render", SMOKE, *changes, "--check", "--json", "--out", out)
        assert _tree(tmp_path) == before
        return shown.code, shown.json["drift"]

    assert check() == (1, BUNDLE)
    written = cli("render", SMOKE, "--out", out)
    assert written.out.splitlines() == [str(out / name) for name in BUNDLE]
    assert check() == (0, [])
    assert check("train.seed=1") == (1, ["plan.json"])
    assert check("optimizer.lr=0.1") == (1, ["ds_config.json", "plan.json"])
    (out / "hostfile").write_text("localhost slots=9\n")
    assert check() == (1, ["hostfile"])
    cli("render", SMOKE, "--out", out)
    (out / "extra").write_text("")
    assert check() == (1, ["extra"])
    (out / "extra").unlink()
    (out / "environment").unlink()
    assert check() == (1, ["environment"])
    (out / "environment").mkdir()
    assert check() == (1, ["environment"])
    told = cli("render", SMOKE, "--check", "--out", out)
    assert told.err == f"differs: {out / 'environment'}\n"


def test_dry_run_shows_the_command_and_touches_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "ops"))
    monkeypatch.delenv("DSFORGE_RUNS", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "very-secret")
    monkeypatch.chdir(tmp_path)
    recipe = write(tmp_path, SMALL + "launch: {env_from: [WANDB_API_KEY]}\n")
    before = _tree(tmp_path)
    shown = cli("launch", recipe, "--dry-run", "--json")
    assert _tree(tmp_path) == before
    assert shown.code == 0, shown.err
    assert shown.json["command"][1].endswith("/bundle/launch.sh")
    assert shown.json["run"].startswith("runs/") or "/runs/" in shown.json["run"]
    assert sorted(shown.json["files"]) == BUNDLE
    assert shown.json["secrets"] == ["WANDB_API_KEY"]
    assert "very-secret" not in shown.out
    text = cli("launch", recipe, "--dry-run")
    assert _tree(tmp_path) == before
    assert "very-secret" not in text.out
    assert "deepspeed" in text.out


def test_a_dry_run_tells_what_rules_warn_of_once(cli: Cli, tmp_path: Path):
    checked = ("trainer=fsdp", "parallel.tp=1", "parallel.pp=1", "parallel.dp=8", "parallel.zero=3")
    shown = cli("launch", write(tmp_path), "--dry-run", *checked, "train.checks.parameters_every=3")
    assert shown.code == 0
    assert shown.err.count("warning[DSF811]: train.checks.parameters_every would compare nothing") == 1


def test_a_plan_names_schedule_optimizer_and_offload_that_are_not_plain(cli: Cli, tmp_path: Path):
    changes = ("parallel.schedule=gpipe", "optimizer.type=lion", "offload.optimizer=cpu")
    lines = cli("plan", write(tmp_path), *changes).out.splitlines()
    assert lines[1] == "  layout   TP 2 x PP 2 x DP 2 (schedule gpipe) = 8 ranks on 1 x 8 cpu"
    assert lines[2] == "  memory   ZeRO-1, fp32, recompute none, lion, optimizer states on cpu"


def test_dry_run_is_of_the_planned_machine_and_warns_about_this_one(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "bin"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    recipe = write(tmp_path, SMALL.replace("gpu: cpu", "gpu: a100-sxm-80gb") + "data: {train: nowhere}\n")
    shown = cli("launch", recipe, "--dry-run", "--json")
    assert shown.code == 0, shown.err
    assert sorted(shown.json["files"]) == BUNDLE
    assert shown.json["command"][1].endswith("/bundle/launch.sh")
    assert "DSFORGE_DEEPSPEED" not in shown.json["environment"]
    assert [one["code"] for one in shown.json["refusals"]] == ["DSF045", "DSF203", "DSF204"]
    assert shown.err.count("warning[DSF") == 3
    assert cli("launch", recipe).code == 3


def test_plan_touches_nothing(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    recipe = write(tmp_path)
    before = _tree(tmp_path)
    for command in ("validate", "plan"):
        cli(command, recipe)
    assert _tree(tmp_path) == before


def test_rules_can_be_looked_up(cli: Cli):
    from dsforge.rules.registry import rules

    shown = cli("rule", "--json").json["rules"]
    assert [one["code"] for one in shown] == sorted(rules())
    assert cli("rule", "dsf121").out.startswith("DSF121 zero0-pipeline-clip (error): ")
    what, why, mend = cli("rule", "DSF045").out.splitlines()
    assert (what, mend) == (
        "DSF045 (error): the recipe's data set is not there",
        "`dsforge data prep FILES -o PREFIX` makes them; paths start from the folder of the recipe.",
    )
    assert cli("rule", "DSF045", "--json").json["errors"][0]["why"] == why
    assert len(cli("rule", "DSF047").out.splitlines()) == 1


def test_data_prep_reports_what_it_wrote(cli: Cli, tmp_path: Path):
    source = tmp_path / "a.txt"
    source.write_text("hello world " * 50)
    shown = cli("data", "prep", source, "-o", tmp_path / "out" / "a", "--vocab", 270, "--json")
    assert shown.code == 0, shown.err
    assert shown.json["documents"] == 1
    assert Path(shown.json["tokenizer"]).is_file()
    assert Path(f"{shown.json['prefix']}.idx").is_file()
