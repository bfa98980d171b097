"""How fast the command line answers, beside its peer: `dsforge --help` against `deepspeed --help`.

Run: make bench. Prints one JSON object: medians in seconds over the rounds, their ratio, the machine.
"""

from __future__ import annotations

import measure

ROUNDS = 5
COMMANDS = {
    "dsforge --help": [measure.BIN / "dsforge", "--help"],
    "deepspeed --help": [measure.BIN / "deepspeed", "--help"],
    "dsforge plan (175B on 1,024 GPUs)": [
        *(measure.BIN / "dsforge", "plan", "--json"),
        measure.ROOT / "recipes" / "gpt3-175b-1024a100.yaml",
    ],
}


def main() -> None:
    """Let the commands answer in turn and print the figures."""
    machine = measure.machine()
    times = measure.in_turn(
        {name: lambda command=command: measure.seconds(command) for name, command in COMMANDS.items()}, ROUNDS
    )
    measure.report(
        "start-up",
        {
            "median_seconds": measure.medians(times, 3),
            "deepspeed_over_dsforge": measure.ratio(times["deepspeed --help"], times["dsforge --help"], 1),
        },
        rounds=ROUNDS,
        machine=machine,
    )


if __name__ == "__main__":
    main()
