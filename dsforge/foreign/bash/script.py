"""A script statement by statement: the commands it would run, the files it would write."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from dsforge.foreign.bash.control import Control, within
from dsforge.foreign.bash.expand import Expander, Source
from dsforge.foreign.bash.text import Lines, Text, joined, literal

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MAX_DEPTH = 40
_NESTED_SHELLS = ("bash", "sh")
_SETTING = ("let", "read", "mapfile", "readarray", "getopts", "shift", "set")
"""Commands of the shell that set variables in ways that are not followed here."""
_LOOPS = ("for_statement", "c_style_for_statement", "while_statement")
_PLAIN = (
    "program",
    "pipeline",
    "compound_statement",
    "subshell",
    "do_group",
    "else_clause",
    "negated_command",
)
_SLURM = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--ntasks": ("SLURM_NTASKS",),
    "-n": ("SLURM_NTASKS",),
    "--cpus-per-task": ("SLURM_CPUS_PER_TASK",),
}
"""Variables of a job by the option of sbatch that they repeat (sbatch(1), output environment variables)."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line as words, and the variables that are set in front of it."""

    words: tuple[Text, ...]
    environment: dict[str, Text]


@dataclass(slots=True)
class Script:
    """What a script comes to. `exported`: variables handed to its commands. `unread`: what is not known."""

    lines: Lines
    commands: list[Command] = field(default_factory=list)
    files: dict[str, Text] = field(default_factory=dict)
    exported: dict[str, Text] = field(default_factory=dict)
    directives: list[Text] = field(default_factory=list)
    unread: list[tuple[str, int, str]] = field(default_factory=list)
    astray: list[Text] = field(default_factory=list)
    """Options that stand where a command begins."""
    broken_at: int | None = None
    """Where the first statement stands that is no shell."""


def read_script(text: str, file: str) -> Script:
    """Return what a script comes to, nothing in it run; DsforgeError DSF693 where it comes to too much."""
    reader = _Reader(Lines(text, file))
    reader.read(literal(text, 0), 0)
    reader.out.unread = reader.expander.unread
    return reader.out


@cache
def _parser() -> Parser:
    from tree_sitter import Language, Parser
    from tree_sitter_bash import language

    return Parser(Language(language()))


class _Reader(Control):
    def __init__(self, lines: Lines) -> None:
        self.out = Script(lines)
        super().__init__(Expander(lines))

    def read(self, text: Text, depth: int) -> None:
        source = Source(text)
        root = _parser().parse(source.raw).root_node
        if ends := sorted(_swallowed(root, source)):
            # The grammar takes a line of several assignments for the front of the command on the next line.
            source = Source(source.with_semicolons(ends))
            root = _parser().parse(source.raw).root_node
        self.statement(root, source, depth)

    def statement(self, node: Node, source: Source, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self.expander.leave(source.of(node), "nested too deeply")
            return
        kind = node.type
        if kind == "ERROR" or (kind in ("variable_assignment", "command") and node.has_error):
            self.broken(node, source)
        elif kind in _PLAIN:
            for child in node.named_children:
                self.statement(child, source, depth + 1)
        else:
            self.single(node, source, depth)

    def single(self, node: Node, source: Source, depth: int) -> None:
        handlers = {
            "list": self.both,
            "if_statement": self.choice,
            "case_statement": self.case,
            "redirected_statement": self.redirected,
            "command": self.command,
            **dict.fromkeys(_LOOPS, self.loop),
        }
        if node.type in handlers:
            handlers[node.type](node, source, depth)
            return
        match node.type:
            case "comment" if str(source.of(node)).startswith("#SBATCH"):
                self.directive(source.of(node))
            case "function_definition":
                self.define(node, source)
            case "variable_assignment":
                self.assign(node, source)
            case "declaration_command" | "variable_assignments":
                exports = str(source.of(node)).startswith("export")
                for child in node.named_children:
                    if child.type == "variable_assignment":
                        self.assign(child, source, exported=exports)
            case "unset_command":
                for one in node.named_children:
                    self.expander.variables.pop(str(source.of(one)), None)
            case kind if kind.endswith("_expression"):
                names = (str(source.of(one)) for one in within(node, ("variable_name", "word")))
                self.forget(names, source.of(node))

    def broken(self, node: Node, source: Source) -> None:
        here = source.of(node)
        self.expander.leave(here, "not understood as shell")
        if self.out.broken_at is None:
            self.out.broken_at = here.at or 0

    def directive(self, line: Text) -> None:
        """Note what a job asks for, and set the variables that Slurm sets by it."""
        self.out.directives.append(line)
        words = list(line.quoted(False).words())[1:]
        for at, word in enumerate(words):
            name, equals, _ = str(word).partition("=")
            value = (
                Text(word.chars[len(name) + 1 :])
                if equals
                else (words[at + 1] if at + 1 < len(words) else None)
            )
            for variable in _SLURM.get(name, ()):
                if value is not None and str(value).isdecimal():
                    self.expander.variables[variable] = value

    def assign(self, node: Node, source: Source, *, exported: bool = False) -> None:
        name_node = node.child_by_field_name("name")
        value_node = node.child_by_field_name("value")
        if name_node is None or name_node.type != "variable_name":
            self.expander.leave(source.of(node), "one item of an array is set")
            return
        name = str(source.of(name_node))
        if value_node is not None and value_node.type == "array":
            items = [
                word
                for one in value_node.named_children
                if one.type != "comment"
                for word in self.expander.words(one, source)
            ]
            value: Text | list[Text] = self.expander.limited(items, node, source)
        else:
            value = self.expander.text(value_node, source) if value_node is not None else Text()
        if any(one.type == "+=" for one in node.children):
            value = _added(self.expander.variables.get(name), value)
        self.expander.variables[name] = value
        if exported and isinstance(value, Text):
            self.out.exported[name] = value

    def redirected(self, node: Node, source: Source, depth: int) -> None:
        body = node.child_by_field_name("body")
        here = next((one for one in node.children if one.type == "heredoc_redirect"), None)
        targets = [one for one in node.children if one.type == "file_redirect"]
        if here is not None:
            targets += [one for one in here.children if one.type == "file_redirect"]
        written = self.target(targets, source)
        words = self.words(body, source) if body is not None and body.type == "command" else []
        name = str(words[0]) if words else ""
        if here is not None and name in ("cat", "tee"):
            target = written or next((word for word in words[1:] if not str(word).startswith("-")), None)
            if target is not None:
                self.out.files[str(target)] = self.document(here, source)
        elif written is not None and name == "echo":
            rest = words[1:]
            self.out.files[str(written)] = joined(rest)
        elif body is not None:
            self.statement(body, source, depth + 1)

    def target(self, redirects: list[Node], source: Source) -> Text | None:
        for one in redirects:
            destination = one.child_by_field_name("destination")
            is_output = any(child.type in (">", ">|") for child in one.children)
            if destination is not None and is_output and one.child_by_field_name("descriptor") is None:
                return self.expander.text(destination, source, quoted=True)
        return None

    def document(self, here: Node, source: Source) -> Text:
        start = next(one for one in here.children if one.type == "heredoc_start")
        body = next((one for one in here.children if one.type == "heredoc_body"), None)
        if body is None:
            return Text()
        if any(mark in str(source.of(start)) for mark in "'\"\\"):
            return source.of(body)
        return self.expander.filled(body, source, (body.start_byte, body.end_byte), "$`\\")

    def words(self, node: Node, source: Source) -> list[Text]:
        out: list[Text] = []
        for child in node.named_children:
            if child.type == "command_name":
                out += self.expander.words(child.children[0], source)
            elif child.type not in ("variable_assignment", "file_redirect", "comment", "herestring_redirect"):
                out += self.expander.words(child, source)
        return out

    def command(self, node: Node, source: Source, depth: int) -> None:
        words = self.words(node, source)
        if not words:
            return
        name = str(words[0])
        if name == "eval":
            self.read(joined(words[1:]).quoted(False), depth + 1)
        elif name.startswith("--"):
            self.out.astray.append(words[0])
        elif name in _SETTING:
            self.forget((str(word).partition("=")[0].rstrip("+-*/") for word in words[1:]), source.of(node))
        elif name in self.functions:
            self.call(words, depth)
        elif name in ("source", "."):
            self.expander.leave(source.of(node), "another file is read here; its variables are not known")
        else:
            environment = {}
            for one in node.named_children:
                left, value = one.child_by_field_name("name"), one.child_by_field_name("value")
                if one.type == "variable_assignment" and left is not None and value is not None:
                    environment[str(source.of(left))] = self.expander.text(value, source)
            self.out.commands.append(Command(tuple(words), environment))
            self.nested(words, depth)

    def nested(self, words: list[Text], depth: int) -> None:
        """Read what is handed to another shell: `srun ... bash -c "..."`."""
        for shell, option, text in zip(words, words[1:], words[2:], strict=False):
            is_shell = str(shell).rpartition("/")[2] in _NESTED_SHELLS
            if is_shell and str(option) in ("-c", "-lc"):
                self.read(text.quoted(False), depth + 1)
                return


def _swallowed(node: Node, source: Source) -> Iterator[int]:
    """Yield where assignments end that are followed by the end of their line, inside of a command."""
    stack = [node]
    while stack:
        one = stack.pop()
        stack += one.children
        if one.type != "command":
            continue
        for child, after in itertools.pairwise(one.children):
            between = str(source.between(child.end_byte, after.start_byte))
            if child.type == "variable_assignment" and "\n" in between.replace("\\\n", ""):
                yield child.end_byte


def _added(before: Text | list[Text] | None, value: Text | list[Text]) -> Text | list[Text]:
    if isinstance(value, list):
        return [*(before if isinstance(before, list) else [before] if before else []), *value]
    if isinstance(before, list):
        return [*before, value]
    return (before or Text()) + value
