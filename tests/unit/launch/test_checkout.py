"""A checkout tells by its own text which options it has; nothing of it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.launch.checkout import check_options, detect, recognise
from dsforge.launch.program import check_program
from dsforge.plan.types import Program, Word

MORE = "\n".join(f"group.add_argument('--filler-{n}', type=int)" for n in range(60))
OPTIONS = """\
raise SystemExit('imported')
group.add_argument('--lr', type=float)
group.add_argument("--no-load-rng")
"""
FIELDS = "\nclass RNGConfig:\n    seed: int = 1234\n    clip_grad: float = 1.0\n"


def checkout(root: Path, flavour: str, text: str = "") -> Path:
    folder = root / "checkout"
    for mark in flavour_of(flavour).marks:
        (folder / mark).parent.mkdir(parents=True, exist_ok=True)
        (folder / mark).write_text(text if "arguments" in mark or "neox_args" in mark else "")
    return folder


def program(flavour: str, *words: str, **more: object) -> Program:
    arguments = tuple(Word(text=word) for word in words)
    entry = flavour_of(flavour).entry or ""
    return Program(flavour=flavour, path="checkout", entry=entry, arguments=arguments, **more)  # type: ignore[arg-type]  # as the test names them


@pytest.mark.parametrize("flavour", ["megatron-deepspeed", "megatron-lm", "gpt-neox"])
def test_a_checkout_is_known_by_its_files(tmp_path, flavour):
    assert detect(tmp_path / "checkout") is None
    assert recognise(checkout(tmp_path, flavour)).name == flavour
    with pytest.raises(DsforgeError) as caught:
        recognise(tmp_path)
    assert caught.value.code == "DSF215"


def test_another_program_s_checkout_is_named(tmp_path):
    checkout(tmp_path, "megatron-lm")
    with pytest.raises(DsforgeError) as caught:
        check_program(program("megatron-deepspeed"), tmp_path)
    assert caught.value.hint == "it looks like one of megatron-lm: set external.flavour"


def test_an_option_that_the_checkout_does_not_declare_is_refused(tmp_path):
    checkout(tmp_path, "megatron-lm", OPTIONS + MORE + FIELDS)
    given = ("--lr", "1e-3", "--seed", "1", "--clip-grad", "1.0", "--no-load-rng")
    check_options(program("megatron-lm", *given), tmp_path)
    with pytest.raises(DsforgeError) as caught:
        check_options(program("megatron-lm", *given, "--min-lr", "0", "--bf16"), tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("DSF218", 1)
    assert caught.value.message == (
        "the checkout declares no option `--min-lr`, by which megatron-lm is told `optimizer.min_lr`"
    )
    assert [one.message.split("`")[1] for one in caught.value.findings] == ["--bf16"]


def test_what_a_library_adds_is_not_asked_of_the_checkout(tmp_path):
    checkout(tmp_path, "megatron-deepspeed", OPTIONS + MORE)
    check_options(
        program("megatron-deepspeed", "--deepspeed", "--deepspeed_config", "x", "--lr", "1"), tmp_path
    )
    with pytest.raises(DsforgeError, match="`--zero-stage`"):
        check_options(program("megatron-deepspeed", "--zero-stage", "1"), tmp_path)


def test_keys_of_a_configuration_are_looked_for_too(tmp_path):
    fields = (
        "\nclass A:\n"
        + "".join(f"    filler_{n}: int = 0\n" for n in range(60))
        + "    num_layers: int = None\n"
    )
    checkout(tmp_path, "gpt-neox", fields)
    check_options(program("gpt-neox", configuration={"num_layers": 2}), tmp_path)
    with pytest.raises(DsforgeError, match="declares no key `hidden_size`"):
        check_options(program("gpt-neox", configuration={"num_layers": 2, "hidden_size": 8}), tmp_path)


@pytest.mark.parametrize("text", ["", OPTIONS, "\0" * 100])
def test_a_checkout_that_declares_next_to_nothing_is_not_judged(tmp_path, text):
    checkout(tmp_path, "megatron-lm", text)
    check_options(program("megatron-lm", "--min-lr", "0"), tmp_path)
