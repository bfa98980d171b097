"""Loading: every fault has a code, a place and a hint; good recipes mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.recipe.load import LoadedRecipe, load_recipe
from tests.support.recipes import SHIPPED, SMALL, write


def fault_of(path: Path, *overrides: str, profile: str | None = None) -> DsforgeError:
    with pytest.raises(DsforgeError) as caught:
        load_recipe(path, overrides, profile)
    return caught.value


def load(folder: Path, text: str, *overrides: str, profile: str | None = None) -> LoadedRecipe:
    return load_recipe(write(folder, text), overrides, profile)


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_load_under_their_files_name(recipe: Path):
    assert load_recipe(recipe).recipe.name == recipe.stem


def test_only_four_keys_are_required(tmp_path: Path):
    text = "version: 1\nmodel: gpt2\ncluster: {gpus_per_node: 1, gpu: cpu}\nbatch: {global: 1, seq_len: 8}\n"
    recipe = load(tmp_path, text).recipe
    assert recipe.trainer == "forge"
    assert recipe.parallel.dp == "auto"
    assert (recipe.optimizer.betas, recipe.optimizer.eps) == ((0.9, 0.95), 1e-8)
    for number, key in enumerate(("version", "model", "cluster", "batch")):
        lines = text.splitlines(keepends=True)
        fault = fault_of(write(tmp_path, "".join(lines[:number] + lines[number + 1 :])))
        assert fault.code == "DSF010"
        assert fault.message == f"required key `{key}` is missing"
        assert fault.hint == f"add `{key}`"


def test_quantities_take_units(tmp_path: Path):
    text = SMALL.replace("steps: 30", "tokens: 2.3M tokens") + (
        "launch: {watchdog: 1h30m, rendezvous_timeout: 90s, collective_timeout: 45}\n"
        "checkpoint: {every_steps: 2K}\n"
    )
    recipe = load(tmp_path, text).recipe
    assert recipe.train.tokens == 2_300_000
    assert recipe.launch.watchdog == 5400.0
    assert recipe.launch.rendezvous_timeout == 90.0
    assert recipe.launch.collective_timeout == 45.0
    assert recipe.checkpoint.every_steps == 2000


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "column", "message", "hint"),
    [
        # Unknown keys name the nearest legal one, wherever it lives, and words of other tools too.
        ("global: 32", "globl: 32", "DSF011", 6, 9, "batch.globl", "did you mean `batch.global`?"),
        ("tp: 2", "context_parallel: 2", "DSF011", 5, 12, "context_parallel", "did you mean `parallel.cp`?"),
        (
            *("tp: 2", "expert_model_parallel_size: 2", "DSF011", 5, 12, "expert_model_parallel_size"),
            "did you mean `parallel.ep`?",
        ),
        ("arch: llama", "arch: mistral", "DSF010", 3, 9, "another name for `mistral`", "`arch: llama`, with"),
        ("global: 32", "global_size: 32", "DSF011", 6, 9, "batch.global_size", "`batch.global`"),
        ("version: 1", "version: 1\nzero_stage: 1", "DSF011", 2, 1, "zero_stage", "`parallel.zero`"),
        ("version: 1", "version: 1\nlearning-rate: 1", "DSF011", 2, 1, "learning-rate", "`optimizer.lr`"),
        ("steps: 30", "steps: 30, seq_len: 3", "DSF011", 7, 20, "train.seq_len", "`batch.seq_len`"),
        ("version: 1", "version: 1\nxyzzy: 1", "DSF011", 2, 1, "xyzzy", "`dsforge schema` lists"),
        # Wrong types and values.
        ("version: 1", "version: 2", "DSF006", 1, 1, "has version 2, this build reads version 1", "upgrade"),
        ("version: 1", "version: 0", "DSF006", 1, 1, "has version 0", "write `version: 1`"),
        ("version: 1", "version: one", "DSF010", 1, 1, "`version` is `'one'`", "one of 1"),
        ("tp: 2", "tp: '2'", "DSF010", 5, 12, "`parallel.tp` is `'2'`", "valid integer"),
        ("tp: 2", "tp: true", "DSF010", 5, 12, "`parallel.tp` is `True`", "valid integer"),
        ("zero: 1", "zero: true", "DSF010", 5, 33, "`parallel.zero`", "it takes 0, 1, 2, 3, auto"),
        ("zero: 1", "zero: 4", "DSF010", 5, 33, "`parallel.zero` is `4`", "one of 0, 1, 2, 3 or 'auto'"),
        ("global: 32", "global: 0", "DSF010", 6, 9, "`batch.global` is `0`", "at least 1"),
        ("global: 32", "global: -1", "DSF010", 6, 9, "`batch.global` is `-1`", "at least 1"),
        ("global: 32", "global: 1.5", "DSF010", 6, 9, "not a whole number", "such as 2K samples"),
        ("global: 32", "global: lots", "DSF010", 6, 9, "'lots' is not a count", "such as 2K samples"),
        ("global: 32", "global: '1e400'", "DSF010", 6, 9, "out of range", "such as 2K samples"),
        ("global: 32", "global: .inf", "DSF010", 6, 9, "not a whole number", "such as 2K samples"),
        ("layers: 4", "layers: 10001", "DSF010", 3, 22, "`model.layers` is `10001`", "at most 10000"),
        ("lr: 3.0e-3", "lr: .nan", "DSF010", 8, 13, "`optimizer.lr` is `nan`", "finite"),
        ("lr: 3.0e-3", "lr: 0", "DSF010", 8, 13, "`optimizer.lr` is `0`", "more than 0"),
        ("lr: 3.0e-3", "lr: '3e-4'", "DSF010", 8, 13, "`optimizer.lr` is `'3e-4'`", "valid number"),
        ("precision: fp32", "precision: tf32", "DSF010", 7, 20, "`train.precision` is `'tf32'`", "'fp16'"),
        ("{steps: 30, precision: fp32}", "fast", "DSF010", 7, 1, "not a section", "write `train:`"),
        ("{steps: 30, precision: fp32}", "[1]", "DSF010", 7, 1, "not a section", "write `train:`"),
        ("arch: llama", "arch: bert", "DSF010", 3, 9, "`model.arch` is `'bert'`", "'gpt-neox' or 'gemma'"),
        ("vocab: 512}", "tied: maybe, vocab: 512}", "DSF010", 3, 85, "`model.tied`", "valid boolean"),
        ("name: small", "name: ''", "DSF010", 2, 1, "`name` is `''`", "it must have at least 1 character"),
        ("name: small", 'name: "a\\0b"', "DSF010", 2, 1, "`name` is", "without a NUL"),
        ("name: small", 'name: "\\ud800"', "DSF010", 2, 1, "`name` is", "string"),
        ("name: small", "name: 2020-01-01", "DSF002", 2, 1, "neither number nor text", "quotes"),
        (
            "name: small",
            "launch: {env: {'A B': x}}",
            "DSF010",
            2,
            16,
            "launch.env.A B",
            "letters, digits",
        ),
        ("name: small", 'launch: {env: {A: "x\\n"}}', "DSF010", 2, 16, "launch.env.A", "on one line"),
        ("name: small", "launch: {env: {A: true}}", "DSF010", 2, 16, "is true/false", "correct"),
        (
            "name: small",
            "launch: {env_from: [A, 'B C']}",
            "DSF010",
            2,
            24,
            "launch.env_from.1",
            "letters, digits",
        ),
        (
            "name: small",
            "data: {train: []}",
            "DSF010",
            2,
            8,
            "`data.train` is `[]`",
            "it must have at least 1 item",
        ),
        ("name: small", "launch: {slurm: {qos: a b}}", "DSF010", 2, 18, "launch.slurm.qos", "write letters"),
        ("name: small", "launch: {slurm: {extra: [-N4]}}", "DSF010", 2, 26, "slurm.extra.0", "a long option"),
        ("name: small", "data: {train: [[1.0]]}", "DSF010", 2, 16, "`data.train.0` has 1", "one more"),
        ("name: small", "launch: {watchdog: 1h 5}", "DSF010", 2, 10, "not a duration", "text such as 1h30m"),
        ("name: small", "launch: {slurm: {time: 1:2}}", "DSF010", 2, 18, "not a dur", "such as 24:00:00"),
        (
            "name: small",
            "launch: {watchdog: 0.001}",
            "DSF010",
            2,
            10,
            "0.001 s is shorter than any step",
            "text such as 1h30m",
        ),
        (
            "gpu: cpu",
            "gpu: cpu, interface: 10.0.0.5/16",
            "DSF010",
            4,
            49,
            "10.0.0.5/16 is an address in a network",
            "write `10.0.0.0/16`",
        ),
        ("name: small", "launch: {pbs: {resources: {a: 4}}}", "DSF010", 2, 28, "is a number", "in quotes"),
        # Keys twice, keys that are no text, tags, broken YAML.
        ("version: 1", "version: 1\nversion: 1", "DSF003", 2, 1, "key `version` stands twice", "keep one"),
        ("global: 32,", "global: 32, global: 32,", "DSF003", 6, 21, "key `global` stands twice", "keep one"),
        ("name: small", "1: 2", "DSF002", 2, 1, "key `1` is not text", "quotes"),
        ("name: small", "~: 2", "DSF002", 2, 1, "key `None` is not text", "quotes"),
        ("name: small", "name: !x y", "DSF002", 2, 7, "tag `!x` is not allowed", "plain value"),
        ("name: small", "name: !!python/name:os.system a", "DSF002", 2, 7, "is not allowed", "plain"),
        ("name: small", "name: !!binary aGk=", "DSF002", 2, 7, "is not allowed", "plain value"),
        ("cluster: {", "cluster: !!python/dict {", "DSF002", 4, 10, "is not allowed", "plain value"),
        ("name: small", "name: [", "DSF002", 2, 7, "not valid YAML", "close the bracket"),
        ("name: small", "name: *nowhere", "DSF002", 2, 7, "undefined alias", "correct the YAML"),
        ("name: small", "name: 'a\0'", "DSF002", 2, 9, "unacceptable character", "correct the YAML"),
        ("name: small", "\tname: small", "DSF002", 2, 1, "not valid YAML", "correct the YAML"),
        ("name: small", "---\nname: small", "DSF002", 2, 1, "another document", "correct the YAML"),
        ("name: small", "<<: 3", "DSF002", 2, 5, "mapping", "correct the YAML"),
        ("global: 32", "global: 0x" + "f" * 6000, "DSF002", 6, 9, "too many digits", "sensible"),
    ],
)
def test_a_fault_says_what_where_and_how(
    tmp_path: Path, old: str, new: str, code: str, line: int, column: int, message: str, hint: str
):
    assert old in SMALL
    recipe = write(tmp_path, SMALL.replace(old, new))
    fault = fault_of(recipe)
    assert fault.code == code
    assert message in fault.message
    assert hint in (fault.hint or "")
    assert fault.place is not None
    assert (fault.place.file, fault.place.line, fault.place.column) == (str(recipe), line, column)
    assert fault.exit_code == 2


def test_every_fault_is_told_at_once(tmp_path: Path):
    text = SMALL.replace("tp: 2", "tp: 0").replace("steps: 30", "stps: 30").replace("version: 1\n", "")
    fault = fault_of(write(tmp_path, text))
    told = [(fault.code, fault.message), *[(one.code, one.message) for one in fault.findings]]
    assert told == [
        ("DSF011", "unknown key `train.stps`"),
        ("DSF010", "required key `version` is missing"),
        ("DSF010", "`parallel.tp` is `0`"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "a: " + "{b: " * 3000 + "1" + "}" * 3000,
        "".join(f"{'  ' * depth}a:\n" for depth in range(60)),
    ],
    ids=["flow", "flow-maps", "block"],
)
def test_deep_nesting_is_refused_before_it_costs_time(tmp_path: Path, text: str):
    fault = fault_of(write(tmp_path, text))
    assert (fault.code, fault.message) == ("DSF002", "nested too deeply")


def test_alias_bombs_are_refused(tmp_path: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    fault = fault_of(write(tmp_path, "\n".join(lines)))
    assert (fault.code, fault.message) == ("DSF002", "is too large once aliases are expanded")


def test_an_alias_of_itself_is_refused(tmp_path: Path):
    for text in ("a: &a [*a]\n", "profiles: &a {b: *a}\n", "profiles: {a: &a {b: {c: *a}}}\n"):
        fault = fault_of(write(tmp_path, text + SMALL))
        assert (fault.code, fault.message) == ("DSF002", "alias `*a` stands inside itself")


def test_a_data_file_is_not_a_recipe(tmp_path: Path):
    fault = fault_of(write(tmp_path, "a: [" + "1, " * 60_000 + "1]\n"))
    assert (fault.code, fault.message) == ("DSF002", "holds too many values")


def test_anchors_and_merge_keys_work(tmp_path: Path):
    text = SMALL.replace("batch: {", "batch: &b {") + "profiles: {p: {batch: {<<: *b, micro: 1}}}\n"
    recipe = load(tmp_path, text, profile="p").recipe
    assert (recipe.batch.global_size, recipe.batch.micro) == (32, 1)


def test_bom_and_crlf_change_nothing(tmp_path: Path):
    plain = load(tmp_path, SMALL).recipe
    other = tmp_path / "other.yaml"
    other.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load_recipe(other).recipe == plain
    other.write_bytes(SMALL.replace("tp: 2", "tp: 0").replace("\n", "\r\n").encode())
    place = fault_of(other).place
    assert place is not None
    assert (place.line, place.column) == (5, 12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a mapping of keys to values"),
        (b"- 1\n", "is not a mapping of keys to values"),
        (b"just words\n", "is not a mapping of keys to values"),
    ],
)
def test_what_is_no_mapping(tmp_path: Path, content: bytes, message: str):
    recipe = tmp_path / "r.yaml"
    recipe.write_bytes(content)
    fault = fault_of(recipe)
    assert (fault.code, fault.message) == ("DSF002", message)
    assert "version: 1" in (fault.hint or "")


def test_files_that_cannot_be_read(tmp_path: Path):
    missing = fault_of(tmp_path / "nowhere.yaml")
    assert (missing.code, missing.message) == ("DSF001", "no such file")
    assert str(missing.place) == str(tmp_path / "nowhere.yaml")
    assert fault_of(tmp_path).message == "cannot be read: Is a directory"
    assert fault_of(tmp_path / ("x" * 300)).message == "cannot be read: File name too long"
    other = tmp_path / "other.yaml"
    other.write_bytes(SMALL.encode() + b"# caf\xe9\n")
    assert fault_of(other).message == f"is not UTF-8 text (byte {len(SMALL) + 5})"
    other.write_bytes(SMALL.encode("utf-16"))
    assert fault_of(other).message == "is not UTF-8 text (byte 0)"
    other.write_bytes(SMALL.encode() + b"#" * (1 << 20))
    assert fault_of(other).message == "is larger than 1 MiB"
    assert all(fault_of(path).hint for path in (other, tmp_path))
