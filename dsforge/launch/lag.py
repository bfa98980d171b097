"""From where the ranks are to which of them lag, and whether they are slow or hang. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dsforge.base.text import in_runs
from dsforge.launch.waits import phase_of, place_of, wait_of
from dsforge.records.streams import StackSample

_BUSY_SHARE = 0.1
"""Of a core: what waits or hangs uses less, with all its threads and workers."""
_STOPPED = {"T": "is stopped by a signal (SIGSTOP)", "t": "is held by a debugger"}
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the stacks of all ranks say. `is_slow`: one that the others wait for still works.

    `rank`: the one to look at first, None where none can be told from the others. `words`: lines, which begin
    with what that one does.
    """

    is_slow: bool
    rank: int | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """One rank, looked at twice."""

    first: StackSample
    last: StackSample
    wait: str | None
    """Where it waits for others."""

    @property
    def share(self) -> float:
        """How much of a core it used in between."""
        seconds = self.last.time - self.first.time
        return (self.last.cpu_seconds - self.first.cpu_seconds) / seconds if seconds > 0 else 0.0

    @property
    def is_stopped(self) -> bool:
        return self.last.state in _STOPPED

    @property
    def is_blocked(self) -> bool:
        return self.first.state == self.last.state == "D" and self.share < _BUSY_SHARE

    @property
    def is_busy(self) -> bool:
        return not self.is_stopped and (self.moves or self.share >= _BUSY_SHARE)

    @property
    def moves(self) -> bool:
        """Tell whether it is elsewhere than before; what was seen once only tells nothing."""
        looks = {self.first.frames, self.last.frames}
        return len(looks) == 2 and () not in looks


def judge(samples: Iterable[StackSample], hosts: Mapping[int, str], *, on_gpus: bool) -> Verdict:
    """Return which ranks lag behind the others; `hosts` is that of every rank that was asked.

    A rank waits where its innermost call ends only when others do their part. Who does not is waited for.
    """
    seen = _by_rank(samples, on_gpus=on_gpus)
    silent = [rank for rank in hosts if rank not in seen]
    lagging = {rank: one for rank, one in seen.items() if one.wait is None}
    # Without its calls a process says something only by its state; a GPU is waited for at full speed.
    blind = [
        rank
        for rank, one in lagging.items()
        if not one.last.frames and not (one.is_stopped or one.is_blocked or (one.is_busy and not on_gpus))
    ]
    named = sorted(lagging.keys() - set(blind), key=lambda rank: (_blame(lagging[rank]), rank))
    groups = _groups(seen)
    parts = [_of_lagging(rank, lagging[rank], hosts.get(rank)) for rank in named[:_MOST_NAMED]]
    if left := named[_MOST_NAMED:]:
        parts.append(f"{_ranks(left)} wait for nobody either")
    parts += _of_waiting(groups, alone=not (lagging or silent))
    if blind:
        parts.append(
            f"of {_ranks(blind)} nothing can be told; py-spy would, where it is installed and allowed"
        )
    if silent:
        parts.append(f"{_ranks(silent)} did not answer")
    fewest = list(groups.values())[-1:] if len(groups) > 1 else []
    first = next((rank for ranks in (named, silent, *fewest) for rank in ranks), None)
    is_slow = any(lagging[rank].is_busy for rank in named)
    return Verdict(is_slow, first, tuple(parts) or ("no rank is left to ask",))


def _by_rank(samples: Iterable[StackSample], *, on_gpus: bool) -> dict[int, _Seen]:
    """Return what was seen of each rank; who was looked at once was the same the whole time."""
    looks: dict[int, list[StackSample]] = {}
    for sample in samples:
        looks.setdefault(sample.rank, []).append(sample)
    found = {}
    for rank, taken in sorted(looks.items()):
        first, last = (min(taken, key=lambda one: one.is_last), max(taken, key=lambda one: one.is_last))
        seen = _Seen(first, last, wait_of(last.frames, on_gpus=on_gpus))
        found[rank] = _Seen(first, last, None) if seen.is_stopped or seen.is_blocked else seen
    return found


def _blame(one: _Seen) -> int:
    """Order ranks by how surely it is them: stopped, kept by the kernel, hanging, at work."""
    return (one.is_stopped, one.is_blocked, not one.is_busy, True).index(True)


def _of_lagging(rank: int, one: _Seen, host: str | None) -> str:
    frames = one.last.frames
    phase = phase_of(frames)
    where = f" in {place_of(frames)}" if frames else ""
    where += f" ({phase})" if phase else ""
    if one.is_stopped:
        does = f"{_STOPPED[one.last.state]}{where}"
    elif one.is_blocked:
        channel = one.last.channel or "uninterruptible sleep"
        does = f"waits for a disk or a device in the kernel's {channel}{where}"
    elif one.is_busy:
        does = f"still works{where}" + (f", on {one.share:.0%} of a core" if one.share >= _BUSY_SHARE else "")
    else:
        does = f"hangs{where}" + (f", asleep in the kernel's {one.last.channel}" if one.last.channel else "")
    return f"rank {rank}{f' on host {host}' if host else ''} {does}"


def _groups(seen: Mapping[int, _Seen]) -> dict[str, list[int]]:
    """Return the ranks by where they wait, the most first."""
    found: dict[str, list[int]] = {}
    for rank, one in seen.items():
        if one.wait is not None:
            found.setdefault(one.wait, []).append(rank)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[1])))


def _of_waiting(groups: Mapping[str, Sequence[int]], *, alone: bool) -> list[str]:
    if not alone:
        return [
            f"{_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {where}"
            for where, ranks in groups.items()
        ]
    if len(groups) == 1:
        return [f"all ranks wait in {next(iter(groups))}: the network or a device does not finish it"]
    told = [f"{_ranks(ranks)} in {where}" for where, ranks in groups.items()]
    return ["all ranks wait, and not in the same call", *told] if told else []


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {in_runs(ranks)}"
