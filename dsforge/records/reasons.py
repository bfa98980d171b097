"""The words for what ended an attempt, whoever tells of it: a closed set."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """What ended an attempt. An exit's kind says which process ended how, the reason says why."""

    HARDWARE = "hardware"
    """A device or its memory is broken."""
    NETWORK = "network"
    """Ranks could not reach each other, or no longer."""
    HOST_LOST = "host_lost"
    """A host is gone as a whole."""
    PREEMPTION = "preemption"
    """A scheduler took the machines back."""
    LAUNCHER = "launcher"
    """What starts the ranks died; they ended with it."""
    KILLED = "killed"
    """Somebody outside of the run ended a rank."""
    HUNG = "hung"
    """Nothing moved for longer than the recipe allows."""
    OUT_OF_MEMORY = "out_of_memory"
    """The accelerator's memory was not enough."""
    HOST_MEMORY = "host_memory"
    """The host's memory was not enough."""
    CONFIGURATION = "configuration"
    """What the recipe says cannot be done."""
    ENVIRONMENT = "environment"
    """The host lacks what the run needs: a package, a file, a permission, room on a disk."""
    NUMERICS = "numerics"
    """A loss, gradient or weight is not finite."""
    RANKS_DIFFER = "ranks_differ"
    """Ranks that should hold the same numbers hold others."""
    PROGRAM = "program"
    """The program failed by itself."""
    STOPPED = "stopped"
    """Somebody asked for the end."""
    UNKNOWN = "unknown"
