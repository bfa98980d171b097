"""The forms of texts in a recipe, each with the words that tell it to who wrote another."""

from __future__ import annotations

ANY_TEXT = r"^[^\x00]+$"
ANY_TEXT_OR_NONE = r"^[^\x00]*$"
ONE_LINE_OR_NONE = r"^[^\x00\n\r]*$"
ONE_LINE = r"^[^\x00\n\r]+$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
HOST_CHOICE = r"^[A-Za-z0-9_.,:@\[\] -]+$"
INTERFACE = r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,14}|[0-9A-Fa-f.:]{1,45}/[0-9]{1,3})$"
SLURM_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.,+-]*$"
SLURM_CONSTRAINT = r"^[A-Za-z0-9_\[(][A-Za-z0-9_.,&|*()\[\]-]*$"
SLURM_OPTION = r"^--[a-z][a-z0-9-]*(=[A-Za-z0-9_.,:/@%+&|()*\[\]-]+)?$"

WORDS = {
    ANY_TEXT: "write text without a NUL character",
    ANY_TEXT_OR_NONE: "write text without a NUL character",
    ONE_LINE_OR_NONE: "write text on one line, without a NUL character",
    ONE_LINE: "write text on one line, without a NUL character",
    VARIABLE: "write letters, digits and underscores, not a digit first",
    HOST_CHOICE: "write hosts and GPUs as deepspeed takes them, with ranges: `node[01-04]:0-3@node7`",
    INTERFACE: "write the name of an interface, a network such as `10.0.0.0/16`, or `auto`",
    SLURM_NAME: "write letters, digits and `_.,+-`, a letter, a digit or an underscore first",
    SLURM_CONSTRAINT: "write letters, digits and `_.,&|*()[]-`: features, without spaces",
    SLURM_OPTION: "write a long option of sbatch, with its value behind `=` and without spaces: `--mem=0`",
}
"""What to write, by pattern."""
