"""The files that the ranks of a request read besides its bundle."""

from __future__ import annotations

from pathlib import Path

from dsforge.launch.types import LaunchRequest


def files_read(request: LaunchRequest) -> tuple[str, ...]:
    """Return the absolute paths of a request's files, each once."""
    plan, root = request.plan, request.recipe_root
    prefixes = [str(root / one.prefix) for one in (*plan.data.train, *plan.data.valid)]
    if request.corpus is not None:
        prefixes.append(request.corpus)
    files = [root / Path(request.recipe_path).name]
    files += [Path(f"{prefix}{suffix}") for prefix in prefixes for suffix in (".idx", ".bin")]
    if plan.data.tokenizer is not None:
        files.append(root / plan.data.tokenizer)
    if plan.external is not None:
        files.append(root / plan.external.path / plan.external.entry)
    return tuple(dict.fromkeys(map(str, files)))
