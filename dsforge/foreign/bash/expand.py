"""Words of a script and what they come to: variables, defaults, arrays, quotes, arithmetic."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dsforge.base.errors import DsforgeError
from dsforge.foreign.bash.arithmetic import computed
from dsforge.foreign.bash.text import MAX_CHARACTERS, Char, Lines, Text, joined, made

if TYPE_CHECKING:
    from tree_sitter import Node

Value = Text | list[Text]
"""Of a variable, or of an array."""
_ESCAPED_IN_QUOTES = '$`"\\'
_ANSI = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r", "a": "\a", "0": "\0"}
_HERE = ("`pwd`", "$(pwd)")
"""Where the script is started: what a relative path starts from, too."""
_BRACES = re.compile(r"\{[^{}\0]*,[^{}\0]*\}|\{\w+\.\.\w+\}")
_FILES = re.compile(r"[*?]")
_NAME = re.compile(r"[A-Za-z_]\w*")


class Source:
    """The text that a syntax tree was made of."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.raw = str(text).encode("utf-8")
        self._index: list[int] = []
        for index, one in enumerate(text.chars):
            self._index += [index] * len(one.char.encode("utf-8"))
        self._index.append(len(text.chars))

    def between(self, start: int, end: int) -> Text:
        """Return the text between two bytes."""
        return Text(self.text.chars[self._index[start] : self._index[end]])

    def with_semicolons(self, ends: list[int]) -> Text:
        """Return the text with a semicolon at each of these bytes, in order."""
        out: list[Char] = []
        start = 0
        for end in ends:
            chars = self.between(start, end).chars
            out += (*chars, Char(";", chars[-1].at))
            start = end
        return Text((*out, *self.between(start, len(self.raw)).chars))

    def of(self, node: Node) -> Text:
        """Return the text of a node."""
        return self.between(node.start_byte, node.end_byte)


@dataclass(slots=True)
class Expander:
    """Variables so far, and what could not be read of the words that use them."""

    lines: Lines
    variables: dict[str, Value] = field(default_factory=dict)
    unread: list[tuple[str, int, str]] = field(default_factory=list)
    """Text, offset and reason of each part of the script whose value is not known."""

    def leave(self, text: Text, why: str) -> None:
        """Note a part of the script that is not read, once, where it stands first."""
        if text.is_open:
            return
        first = str(text).strip().split("\n", 1)[0]
        row = (first if len(first) <= 60 else first[:57] + "...", text.at or 0, why)
        if row not in self.unread:
            self.unread.append(row)

    def words(self, node: Node, source: Source) -> list[Text]:
        """Return the words that a word of a command line comes to."""
        words = [self._settled(word) for word in self._words(node, source)]
        return self.limited(words, node, source)

    def _settled(self, word: Text) -> Text:
        """Return a word; open where the shell makes others of it, by braces or by files that are there."""
        bare = "".join("\0" if one.quoted or one.open else one.char for one in word.chars)
        if not _BRACES.search(bare) and not ("/" in bare and _FILES.search(bare)):
            return word
        self.leave(word, "the shell makes other words of it where the script runs")
        return opened(word)

    def limited(self, words: list[Text], node: Node, source: Source) -> list[Text]:
        """Return words; DsforgeError DSF693 when they come to too much."""
        self._limit(sum(len(word.chars) + 1 for word in words), node, source)
        return words

    def _limit(self, characters: int, node: Node, source: Source) -> None:
        if characters > MAX_CHARACTERS:
            place = self.lines.place(source.of(node).at)
            hint = "write the command line out"
            raise DsforgeError("DSF693", "the script makes too long a text here", place, hint)

    def _words(self, node: Node, source: Source) -> list[Text]:
        spread = self._spread(node, source)
        if spread is not None:
            items, quoted = spread
            return items if quoted else [word for item in items for word in item.quoted(False).words()]
        found = self.text(node, source)
        is_quoted = node.type in ("string", "raw_string", "ansi_c_string") or (
            node.type == "concatenation" and any("string" in one.type for one in node.children)
        )
        return list(found.words()) or ([Text()] if is_quoted else [])

    def _spread(self, node: Node, source: Source) -> tuple[list[Text], bool] | None:
        """Return the items of an `${ARRAY[@]}` that stands alone, and whether in quotes."""
        quoted = node.type == "string" and len(node.named_children) == 1
        inner = node.named_children[0] if quoted else node
        if len(inner.children) == 0:
            return None
        alone = inner.end_byte - inner.start_byte + 2 == node.end_byte - node.start_byte
        if inner.type == "simple_expansion" and str(source.of(inner)) in ("$@", "$*"):
            return self._handed(source.of(inner)), quoted
        if inner.type != "expansion" or (quoted and not alone):
            return None
        match = re.fullmatch(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}", str(source.of(inner)))
        if match is None:
            return None
        value = self.variables.get(match[1])
        if value is None:
            self.leave(source.of(inner), "no array of this name is filled before")
            return [], quoted
        items = value if isinstance(value, list) else [value]
        return [item.quoted(True) for item in items], quoted

    def _handed(self, here: Text) -> list[Text]:
        """Return what a function is called with; of the script itself that is not known."""
        handed = self.variables.get("@")
        if isinstance(handed, list):
            return [item.quoted(True) for item in handed]
        self.leave(here, "what the script itself is called with")
        return []

    def text(self, node: Node, source: Source, *, quoted: bool = False) -> Text:
        """Return what a word comes to, blanks that separate words unquoted."""
        found = self._text(node, source, quoted)
        self._limit(len(found.chars), node, source)
        return found

    def _text(self, node: Node, source: Source, quoted: bool) -> Text:  # noqa: PLR0911 - a kind each
        here = source.of(node)
        if "expansion" in node.type:
            here = _from_dollar(here)
        match node.type:
            case "word" | "number" | "variable_name" | "extglob_pattern" if not node.named_children:
                return _unescaped(here, None, quoted)
            case "raw_string":
                return Text(here.chars[1:-1]).quoted(True)
            case "ansi_c_string":
                return _ansi(Text(here.chars[2:-1]))
            case "string" | "translated_string":
                inside = _inside(node)
                return self.filled(node, source, inside, _ESCAPED_IN_QUOTES).quoted(True)
            case "concatenation":
                return self.filled(node, source, (node.start_byte, node.end_byte), None, quoted=quoted)
            case "simple_expansion":
                return self._variable(str(here)[1:], here, quoted)
            case "expansion":
                return self._braced(node, source, here, quoted)
            case "arithmetic_expansion":
                return self._arithmetic(node, source, here)
        if str(here) in _HERE:
            return made(".", here.chars[0].at)
        self.leave(here, "known only where the script runs")
        return opened(here)

    def filled(
        self,
        node: Node,
        source: Source,
        between: tuple[int, int],
        escaped: str | None,
        *,
        quoted: bool = True,
    ) -> Text:
        """Return text with the expansions in it filled in; `escaped`: what a backslash acts on, None: all."""
        out: list[Char] = []
        at, end = between
        for child in node.named_children:
            if child.type in ("string_content", "heredoc_content") or child.start_byte < at:
                continue
            out += _unescaped(source.between(at, child.start_byte), escaped, quoted).chars
            if "expansion" in child.type:
                whole = source.of(child)
                out += whole.chars[: len(whole.chars) - len(_from_dollar(whole).chars)]
            out += self.text(child, source, quoted=quoted).chars
            self._limit(len(out), node, source)
            at = child.end_byte
        out += _unescaped(source.between(at, end), escaped, quoted).chars
        return Text(tuple(out))

    def _variable(self, name: str, here: Text, quoted: bool) -> Text:
        value = self.variables.get(name)
        if value is None and name == "PWD":
            return made(".", here.chars[0].at)
        if value is None:
            self.leave(here, "a variable that the script does not set")
            return opened(here)
        whole = value if isinstance(value, Text) else (value[0] if value else Text())
        return whole.quoted(quoted)

    def _braced(self, node: Node, source: Source, here: Text, quoted: bool) -> Text:
        match = re.fullmatch(r"\$\{(\w+)(?:\[([@*\d]+)\])?(:?[-=+])?(.*)\}", str(here), re.DOTALL)
        if match is None or (match[4] and not match[3]):
            return self._counted(here)
        name, index, operator = match[1], match[2], match[3]
        value = self.variables.get(name)
        if operator is None:
            return (
                self._variable(name, here, quoted) if index is None else self._item(name, index, here, quoted)
            )
        if operator in (":+", "+"):
            is_set = value is not None and (operator == "+" or bool(_whole(value).chars))
            return self._default(node, source, quoted) if is_set else Text()
        if value is not None and (operator[0] != ":" or _whole(value).chars):
            return _whole(value).quoted(quoted)
        found = self._default(node, source, quoted)
        if value is None:
            self.leave(here, f"`{name}` is not set in the script: its default is taken")
        if operator.endswith("="):
            self.variables[name] = found
        return found

    def _default(self, node: Node, source: Source, quoted: bool) -> Text:
        """Return what stands behind the operator of a `${NAME:-...}`."""
        operator = next(one for one in node.children if one.type in (":-", "-", ":=", "=", ":+", "+"))
        between = (operator.end_byte, node.end_byte - 1)
        inner = [one for one in node.named_children if one.start_byte >= operator.end_byte]
        if len(inner) == 1 and (inner[0].start_byte, inner[0].end_byte) == between:
            return self.text(inner[0], source, quoted=quoted)
        if not inner:
            return _unescaped(source.between(*between), None, quoted)
        return joined(self.text(one, source, quoted=quoted) for one in inner)

    def _counted(self, here: Text) -> Text:
        match = re.fullmatch(r"\$\{#(\w+)\[[@*]\]\}", str(here))
        value = self.variables.get(match[1]) if match else None
        if isinstance(value, list):
            return made(str(len(value)), here.chars[0].at)
        self.leave(here, "an expansion that is not computed here")
        return opened(here)

    def _item(self, name: str, index: str, here: Text, quoted: bool) -> Text:
        value = self.variables.get(name)
        items = value if isinstance(value, list) else [value] if value is not None else []
        if index in "@*":
            return joined(item.quoted(quoted) for item in items)
        if int(index[:6]) < len(items):
            return items[int(index[:6])].quoted(quoted)
        self.leave(here, "an array has no such item")
        return opened(here)

    def _arithmetic(self, node: Node, source: Source, here: Text) -> Text:
        found = computed(node, lambda inner: self._number(inner, source))
        if found is None:
            self.leave(here, "cannot be computed from what the script says")
            return opened(here)
        return made(str(found), here.chars[0].at)

    def _number(self, node: Node, source: Source) -> str | None:
        text = str(source.of(node))
        if _NAME.fullmatch(text):
            value = self.variables.get(text)
            return str(_whole(value)) if value is not None else None
        return str(self.text(node, source))


def _whole(value: Value) -> Text:
    return value if isinstance(value, Text) else (value[0] if value else Text())


def opened(here: Text) -> Text:
    """Return text as what is known only where the script runs."""
    return Text(tuple(one._replace(open=True, quoted=True) for one in here.chars))


def _from_dollar(here: Text) -> Text:
    """Return an expansion without the blanks before it, which the parser counts in behind another one."""
    blanks = len(str(here)) - len(str(here).lstrip())
    return Text(here.chars[blanks:])


def _inside(node: Node) -> tuple[int, int]:
    opening = 2 if node.type == "translated_string" else 1
    return node.start_byte + opening, node.end_byte - 1


def _unescaped(text: Text, escaped: str | None, quoted: bool) -> Text:
    """Return text without backslashes; `escaped`: what they act on besides line ends, None: everything."""
    out: list[Char] = []
    chars, at = text.chars, 0
    while at < len(chars):
        one, after = chars[at], chars[at + 1] if at + 1 < len(chars) else None
        if one.char == "\\" and not one.open and after is not None:
            if after.char == "\n":
                at += 2
                continue
            if escaped is None or after.char in escaped:
                out.append(after._replace(quoted=True))
                at += 2
                continue
        out.append(one._replace(quoted=quoted or one.open))
        at += 1
    return Text(tuple(out))


def _ansi(text: Text) -> Text:
    out: list[Char] = []
    chars, at = text.chars, 0
    while at < len(chars):
        one = chars[at]
        if one.char == "\\" and at + 1 < len(chars) and chars[at + 1].char in _ANSI:
            at += 1
            one = one._replace(char=_ANSI[chars[at].char])
        out.append(one._replace(quoted=True))
        at += 1
    return Text(tuple(out))
