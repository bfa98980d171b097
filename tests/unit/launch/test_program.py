"""A checkout is recognised by its files and by git's, without running git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.program import check_program, missing_tools, revision_of, unknown_revision
from dsforge.plan.types import Program

COMMIT = "4efb479" + "0" * 33


def program(flavour: str = "megatron-deepspeed") -> Program:
    return Program(flavour=flavour, path="checkout", entry="pretrain_gpt.py", arguments=())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for name in ("pretrain_gpt.py", "megatron/arguments.py", "megatron/training.py", ".git/refs/heads/main"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    return folder


def test_a_known_revision_is_silent(checkout):
    assert revision_of(checkout) == COMMIT
    assert unknown_revision(program(), checkout.parent) is None
    check_program(program(), checkout.parent)


def test_a_detached_head_and_packed_refs_are_read(checkout):
    (checkout / ".git" / "refs" / "heads" / "main").unlink()
    (checkout / ".git" / "packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    assert revision_of(checkout) == COMMIT
    (checkout / ".git" / "HEAD").write_text("f" * 40)
    assert revision_of(checkout) == "f" * 40


def test_a_worktree_that_git_made_is_read(tmp_path):
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(tmp_path), *identity, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q", "one")
    git("-C", "one", "commit", "-q", "--allow-empty", "-m", "x")
    git("-C", "one", "worktree", "add", "-q", "../two")
    assert revision_of(tmp_path / "two") == git("-C", "one", "rev-parse", "HEAD")


def test_an_unknown_revision_is_told_with_what_is_assumed(checkout):
    (checkout / ".git" / "HEAD").write_text("f" * 40)
    told = unknown_revision(program(), checkout.parent)
    assert told == (
        "the checkout is at revision ffffffffffff; "
        "its options are taken to be those of megatron-deepspeed at 4efb479"
    )
    (checkout / ".git" / "HEAD").unlink()
    assert "says nothing of its revision" in (unknown_revision(program(), checkout.parent) or "")


def test_another_program_or_none_is_refused(checkout):
    with pytest.raises(DsforgeError) as caught:
        check_program(program("megatron-lm"), checkout.parent)
    assert caught.value.code == "DSF215"
    assert "megatron/training/arguments.py" in caught.value.message
    (checkout / "pretrain_gpt.py").unlink()
    with pytest.raises(DsforgeError, match=r"it has no pretrain_gpt\.py"):
        check_program(program(), checkout.parent)


def test_what_a_program_compiles_itself_with_is_looked_for(checkout, monkeypatch):
    assert missing_tools(program(), checkout.parent) is None
    (checkout / "megatron" / "data").mkdir()
    (checkout / "megatron" / "data" / "Makefile").touch()
    monkeypatch.setenv("PATH", str(checkout))
    told = missing_tools(program(), checkout.parent)
    assert told is not None
    assert "compiles megatron/data/helpers*.so when it starts, and here is no make, g++" in told
    (checkout / "megatron" / "data" / "helpers.cpython-311-x86_64-linux-gnu.so").touch()
    assert missing_tools(program(), checkout.parent) is None
