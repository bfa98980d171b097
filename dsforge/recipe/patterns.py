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
KUBERNETES_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_KEY = rf"({_DNS_NAME}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"
KUBERNETES_NAME = rf"^{_DNS_NAME}$"
KUBERNETES_KEY = rf"^{_KEY}$"
KUBERNETES_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
KUBERNETES_TOLERATION = (
    rf"^{_KEY}"
    r"(=[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?(:(NoSchedule|PreferNoSchedule|NoExecute))?$"
)
QUANTITY = r"^[0-9]+(\.[0-9]+)?([EPTGMk]i?|Ki|m)?$"
_IMAGE_DOMAIN = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[0-9]+)?"
_IMAGE_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
IMAGE = (
    rf"^({_IMAGE_DOMAIN}/)?{_IMAGE_PART}(/{_IMAGE_PART})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([_.+-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$"
)
"""The grammar of references of the `distribution/reference` package, which container runtimes read with."""
ABSOLUTE_PATH = r"^(/(\.?[^/.\x00-\x1f:][^/\x00-\x1f:]*|\.\.[^/\x00-\x1f:]+))+$"
PBS_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$"
PBS_RESOURCE = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
PBS_VALUE = r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$"
"""`+` would begin another chunk, `:` another resource, `@` name a server."""

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
    KUBERNETES_LABEL: "write lower-case letters, digits and `-`, at most 63, none of `-` at the ends",
    KUBERNETES_NAME: "write lower-case letters, digits, `-` and `.`, neither at the ends or beside a dot",
    KUBERNETES_KEY: "write a key of Kubernetes, `name` or `domain/name`: `nvidia.com/gpu`",
    KUBERNETES_VALUE: "write letters, digits and `_.-`, at most 63, a letter or a digit at the ends",
    KUBERNETES_TOLERATION: "write a taint as kubectl does: `key`, `key=value` or `key=value:NoSchedule`",
    QUANTITY: "write a quantity of Kubernetes: `8`, `500m`, `64Gi`",
    IMAGE: "write the reference of an image: `registry/name:tag` or `registry/name@sha256:...`",
    ABSOLUTE_PATH: "write an absolute path without `:`, `/./`, `/../` and a slash at the end, not the root",
    PBS_NAME: "write letters, digits and `_.@+-`, a letter, a digit or an underscore first",
    PBS_RESOURCE: "write letters, digits and `_.-`, a letter, a digit or an underscore first",
    PBS_VALUE: "write letters, digits and `_./-`, a letter, a digit or an underscore first",
}
"""What to write, by pattern."""
