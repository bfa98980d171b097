"""`recipe.lock`: the resolved recipe, the plan, versions and hashes that a run has to match."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dsforge.base.canonical import dumps, loads, sha256_text, sha256_value
from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.base.exits import ExitCode
from dsforge.launch import facts
from dsforge.ops.bundles import plan_and_bundle
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.resolved import leaves, resolved_data

SCHEMA_VERSION = 1
_EXACT_PIN = re.compile(r"([A-Za-z0-9_.-]+)==([^;\s]+)")
_MOST_TOLD = 20
"""Differences told one by one; a different model changes every number of a plan."""
_LONGEST_TOLD = 80


@dataclass(frozen=True, slots=True)
class Lock:
    """What a lock file holds. `bundle`: SHA-256 by file name."""

    profile: str | None
    changes: tuple[str, ...]
    recipe: dict[str, Any]
    recipe_sha256: str
    plan: dict[str, Any]
    plan_sha256: str
    bundle: dict[str, str]
    versions: dict[str, str]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the lock as canonical JSON."""
        return dumps(asdict(self))


def default_lock_path(recipe: Path) -> Path:
    """Return where a recipe's lock lies: beside it, `recipe.yaml` to `recipe.lock`."""
    return recipe.with_suffix(".lock")


def make_lock(loaded: LoadedRecipe) -> Lock:
    """Return the lock of a recipe that no rule refuses; it must have been loaded without an environment."""
    plan, bundle = plan_and_bundle(loaded)
    recipe, plan_value = resolved_data(loaded.recipe), plan.to_json_value()
    return Lock(
        profile=loaded.profile,
        changes=loaded.changes,
        recipe=recipe,
        recipe_sha256=sha256_value(recipe),
        plan=plan_value,
        plan_sha256=sha256_value(plan_value),
        bundle={name: sha256_text(text) for name, text in sorted(bundle.files.items())},
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    """Return versions of what is installed here, and for the rest the pins that this build is tested with.

    Without a build's own tag (`+cpu`): what is locked on a laptop is launched on GPUs.
    """
    found = {
        name: version.partition("+")[0] for name, version in facts.versions().items() if name != "python"
    }
    try:
        pins = metadata.requires("dsforge") or []
    except metadata.PackageNotFoundError:  # run from a source tree that is not installed
        pins = []
    for pin in pins:
        match = _EXACT_PIN.match(pin)
        if match:
            found.setdefault(match[1], match[2])
    return found


def read_lock(path: Path) -> Lock:
    """Return the lock in a file; DsforgeError DSF080 when it is missing, damaged or of another version."""
    place = Place(file=str(path))
    hint = "`dsforge lock RECIPE` writes it"
    try:
        data = loads(path.read_text("utf-8"))
        if data["schema_version"] == SCHEMA_VERSION:
            lock = Lock(**{**data, "changes": tuple(data["changes"])})
            whole = (lock.recipe_sha256, lock.plan_sha256) == tuple(
                map(sha256_value, (lock.recipe, lock.plan))
            )
            message = None if whole else "was changed by hand: its hashes do not fit"
        else:
            message = f"is a lock of version {data['schema_version']}, this build reads {SCHEMA_VERSION}"
    except FileNotFoundError:
        message = "no such lock"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except (ValueError, TypeError, KeyError, AttributeError):
        message = "is not a lock of dsforge"
    if message is not None:
        raise DsforgeError("DSF080", message, place, hint)
    return lock


def differences(locked: Lock, now: Lock) -> list[str]:
    """Return what differs, causes first: recipe values and versions; without any, the plan and files."""
    causes = [
        *_differing("recipe", locked.recipe, now.recipe),
        *_differing("versions", locked.versions, now.versions),
    ]
    if causes:
        return causes
    return [
        *_differing("plan", locked.plan, now.plan),
        *_differing("bundle", locked.bundle, now.bundle, values=False),
    ]


def _differing(
    title: str, locked: Mapping[str, Any], now: Mapping[str, Any], *, values: bool = True
) -> Iterator[str]:
    before, after = dict(leaves(dict(locked))), dict(leaves(dict(now)))
    for key in sorted(before.keys() | after.keys()):
        old, new = (_shown(tree, key) for tree in (before, after))
        if old != new:
            yield f"{title} {key}: locked {old}, now {new}" if values else f"{title} {key} differs"


def _shown(tree: Mapping[str, Any], key: str) -> str:
    if key not in tree:
        return "absent"
    text = json.dumps(tree[key], ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LONGEST_TOLD else f"{text[:_LONGEST_TOLD]}... ({sha256_text(text)[:8]})"


def enforce(locked: Lock, now: Lock, path: Path) -> None:
    """Raise DsforgeError DSF081 (exit 1) that names everything in which two locks differ."""
    told = differences(locked, now)
    if not told:
        return
    place = Place(file=str(path))
    hint = "launch what was locked, or lock anew: `dsforge lock RECIPE`"
    rest = told[1:_MOST_TOLD]
    if len(told) > _MOST_TOLD:
        rest.append(f"and {len(told) - _MOST_TOLD} more")
    findings = tuple(Finding("DSF081", Severity.ERROR, one, place=place) for one in rest)
    raise DsforgeError("DSF081", told[0], place, hint, exit_code=ExitCode.FINDINGS, findings=findings)
