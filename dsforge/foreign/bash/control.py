"""What a script does by conditions, in loops and in functions: which of its parts are read."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dsforge.foreign.bash.conditions import holds
from dsforge.foreign.bash.expand import Expander, Source, Value, opened
from dsforge.foreign.bash.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_CALLS = 200
"""Calls of functions that are followed: a few of them can call one another again and again."""

_NOT_JUDGED = (
    "a condition that is known only where the script runs: its commands are read, not whether they run"
)


class Control(ABC):
    """Reads the parts of a script that run, as far as the script says which; the others are noted."""

    def __init__(self, expander: Expander, exported: dict[str, Text]) -> None:
        self.expander = expander
        self.exported = exported
        self.functions: dict[str, tuple[Node, Source]] = {}
        self.calls = 0

    @abstractmethod
    def statement(self, node: Node, source: Source, depth: int) -> None:
        """Read one statement."""

    def each(self, node: Node, branches: Iterable[list[Node]], source: Source, depth: int) -> None:
        """Read branches of which one may run, each from the same start; what they set is open afterwards."""
        self.expander.leave(source.of(node), _NOT_JUDGED)
        variables, exported = dict(self.expander.variables), dict(self.exported)
        for branch in branches:
            for child in branch:
                self.statement(child, source, depth + 1)
            self.expander.variables.clear()
            self.expander.variables.update(variables)
            self.exported.clear()
            self.exported.update(exported)
        names = (one.child_by_field_name("name") for one in within(node, ("variable_assignment",)))
        for name in names:
            if name is not None:
                self.expander.variables[str(source.of(name))] = opened(source.of(name))

    def forget(self, names: Iterable[str], here: Text) -> None:
        """Take the value of variables as not known where it was."""
        for name in names:
            if name in self.expander.variables:
                self.expander.leave(here, f"`{name}` is set in a way that is not followed here")
                self.expander.variables[name] = opened(here)

    def both(self, node: Node, source: Source, depth: int) -> None:
        """Read two commands that `&&` or `||` joins."""
        left, right = node.named_children[0], node.named_children[-1]
        act = next(one.type for one in node.children if one.type in ("&&", "||"))
        if left.type != "test_command":
            self.statement(left, source, depth + 1)
            if act == "&&":
                self.statement(right, source, depth + 1)
            return
        truth = self.holds(left, source)
        if truth is None:
            self.each(node, [[right]], source, depth)
        elif truth == (act == "&&"):
            self.statement(right, source, depth + 1)

    def choice(self, node: Node, source: Source, depth: int) -> None:
        """Read the branch of an `if` that is taken; from a condition that is not known on, each."""
        condition, *rest = node.named_children
        others = [one for one in rest if one.type in ("elif_clause", "else_clause")]
        branches: list[tuple[Node | None, list[Node]]] = [
            (condition, [one for one in rest if one not in others])
        ]
        branches += [
            (None, one.named_children)
            if one.type == "else_clause"
            else (one.named_children[0], one.named_children[1:])
            for one in others
        ]
        for at, (test, body) in enumerate(branches):
            truth = test is None or self.holds(test, source)
            if truth is None:
                self.each(node, [body for _, body in branches[at:]], source, depth)
            elif truth:
                for child in body:
                    self.statement(child, source, depth + 1)
            if truth is not False:
                return

    def case(self, node: Node, source: Source, depth: int) -> None:
        """Read the branch of a `case` that is taken; each that may be where value and patterns do not say."""
        value_node = node.child_by_field_name("value")
        value = self.expander.text(value_node, source, quoted=True) if value_node is not None else Text()
        branches: list[list[Node]] = []
        is_known = True
        for item in (one for one in node.named_children if one.type == "case_item"):
            patterns = item.children_by_field_name("value")
            words = [str(source.of(one)).strip("\"'") for one in patterns]
            is_any = "*" in words
            is_open = value.is_open or (not is_any and any(set("*?[$") & set(word) for word in words))
            is_taken = not is_open and (is_any or str(value) in words)
            is_known &= not is_open
            if is_open or is_taken:
                branches.append([child for child in item.named_children if child not in patterns])
            if is_taken:
                break
        if not is_known:
            self.each(node, branches, source, depth)
            return
        for child in itertools.chain(*branches):
            self.statement(child, source, depth + 1)

    def define(self, node: Node, source: Source) -> None:
        """Keep a function for when it is called."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[str(source.of(name))] = (body, source)

    def call(self, words: list[Text], depth: int) -> None:
        """Read the body of a function as often as it is called, with what it is called with."""
        self.calls += 1
        if self.calls > _MOST_CALLS:
            self.expander.leave(words[0], "too many calls of functions")
            return
        body, source = self.functions[str(words[0])]
        variables = self.expander.variables
        own: dict[str, Value] = {
            "@": words[1:],
            **{str(number): word for number, word in enumerate(words[1:10], 1)},
        }
        kept = {name: variables.get(name) for name in ("@", *map(str, range(1, 10)))}
        for name in kept:
            variables.pop(name, None)
        variables.update(own)
        self.statement(body, source, depth + 1)
        for name, value in kept.items():
            variables.pop(name, None)
            if value is not None:
                variables[name] = value

    def loop(self, node: Node, source: Source, depth: int) -> None:
        """Read what a loop does once; the variable of a `for` has its first value where it has but one."""
        name, items = node.child_by_field_name("variable"), node.children_by_field_name("value")
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        if name is not None:
            words = [word for one in items for word in self.expander.words(one, source)]
            if len(words) == 1:
                self.expander.variables[str(source.of(name))] = words[0]
            else:
                self.expander.variables[str(source.of(name))] = opened(source.of(name))
                self.expander.leave(
                    source.of(node), "a loop: what it does is read once, its variable is open"
                )
        if node.type == "while_statement" and condition is not None and condition.type != "test_command":
            self.statement(condition, source, depth + 1)
        if body is not None:
            self.statement(body, source, depth + 1)

    def holds(self, condition: Node, source: Source) -> bool | None:
        """Return what a condition comes to; the condition as a whole is noted where that is not known."""
        noted = list(self.expander.unread)
        truth = holds(condition, lambda inner: self.expander.text(inner, source, quoted=True))
        self.expander.unread = noted
        return truth


def within(node: Node, kinds: tuple[str, ...]) -> Iterator[Node]:
    """Yield the nodes of some kinds in a part of the script."""
    stack = [node]
    while stack:
        one = stack.pop()
        stack += one.children
        if one.type in kinds:
            yield one
