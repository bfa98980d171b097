"""What a line of an attempt's streams is to who watches the run."""

from __future__ import annotations

import time

from dsforge.launch.follow import SUPERVISOR, Item
from dsforge.launch.reasons import last_words, reason_of_rank
from dsforge.launch.types import ProgressEvent
from dsforge.records.streams import EvalLine, Event, ExitRecord, MetricsLine, WorldReport


def progress_of(item: Item, attempt: int) -> ProgressEvent:
    """Return the event that tells of a line."""
    now = time.time()
    match item:
        case WorldReport(rank=rank):
            place = f"host {item.host}, pid {item.trainer_pid}"
            return ProgressEvent(now, "rank_up", f"rank {rank} started on {place}", attempt, rank)
        case ExitRecord(rank=rank):
            reason, last = reason_of_rank(item), last_words(item.tail)
            words = item.message or "ended well"
            if reason is not None and item.cause in ("exception", "signal"):
                words += f" ({reason.value})" + (f": {last}" if last else "")
            return ProgressEvent(now, "rank_ended", f"rank {rank}: {words}", attempt, rank)
        case MetricsLine(step=step):
            return ProgressEvent(now, "step", f"step {step}: loss {item.loss:.4f}", attempt, metrics=item)
        case EvalLine(step=step):
            over = f" over {item.samples} samples" if item.samples else ""
            told = f"validation after step {step}: loss {item.loss:.4f}{over}"
            return ProgressEvent(now, "validated", told, attempt)
        case Event(source=source, name=name):
            # The supervisor's own are stages of the run, and called as it calls them.
            return ProgressEvent(
                now, name if source == SUPERVISOR else "event", item.message, attempt, event=item
            )
