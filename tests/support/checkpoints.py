"""Checkpoints for these tests: real files, no engine."""

from types import SimpleNamespace

from dsforge.records.checkpoint import MANIFEST_NAME, FileEntry, file_digest, step_folder_name
from dsforge.train import checkpoint
from dsforge.train.fits import data_facts


def context_of(plan, root, run_id="run-1", attempt=1):
    return SimpleNamespace(
        plan=plan,
        checkpoint_dir=root,
        root=root.parent,
        rank=0,
        world_size=1,
        run_id=run_id,
        attempt_number=attempt,
    )


def facts(plan, tokens=100, fingerprint="f0"):
    return data_facts(plan, tokens, fingerprint)


def manifest(plan, step, files=None, run_id="run-1"):
    context = SimpleNamespace(plan=plan, run_id=run_id)
    return checkpoint.manifest_of(context, step, facts(plan), files or {})


def write_whole(root, plan, step, run_id="run-1"):
    folder = root / step_folder_name(step)
    weights = folder / "state" / "weights.pt"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"w" * step)
    files = {"state/weights.pt": FileEntry(step, file_digest(weights))}
    (folder / MANIFEST_NAME).write_text(manifest(plan, step, files, run_id).to_json())
    return folder
