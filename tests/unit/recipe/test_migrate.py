"""Older recipes are rewritten step by step; there is one version so far, so the steps are invented."""

from __future__ import annotations

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.recipe.edit import edit, rename
from dsforge.recipe.migrate import Step, migrate, registered
from dsforge.recipe.version import NEWEST
from tests.support.recipes import SMALL

STEPS = {
    1: Step(1, "batch.global is called batch.samples", lambda text: rename(text, "batch.global", "samples")),
    2: Step(2, "train.dtype is gone", lambda text: edit(text, {"train.precision": "bf16"})),
}


def test_every_version_has_a_step_to_the_next():
    assert sorted(registered()) == list(range(1, NEWEST))


def test_steps_follow_each_other_and_keep_comments():
    text = "# mine\n" + SMALL.replace("version: 1", "version: 1  # old")
    done = migrate(text, "r.yaml", STEPS, newest=3)
    assert done.text == text.replace("version: 1", "version: 3").replace("global:", "samples:").replace(
        "fp32", "bf16"
    )
    assert (done.from_version, done.to_version) == (1, 3)
    assert done.summaries == ("batch.global is called batch.samples", "train.dtype is gone")
    later = migrate(text.replace("version: 1", "version: 2"), "r.yaml", STEPS, newest=3)
    assert "global: 32" in later.text
    assert later.summaries == ("train.dtype is gone",)


def test_the_newest_version_stays_as_it_is():
    assert migrate(SMALL, "r.yaml").text == SMALL


@pytest.mark.parametrize(
    ("version", "hint"),
    [("4", "upgrade dsforge"), ("0", "write `version: 3`"), ("one", "start it"), ("true", "start it")],
)
def test_versions_that_cannot_be_migrated(version: str, hint: str):
    with pytest.raises(DsforgeError) as caught:
        migrate(SMALL.replace("version: 1", f"version: {version}"), "r.yaml", STEPS, newest=3)
    assert caught.value.code == "DSF006"
    assert hint in (caught.value.hint or "")
    assert str(caught.value.place) == "r.yaml:1:1"
