"""GPT-NeoX configurations: several YAML files as the one mapping that the program makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsforge.base.errors import Place
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.engines.neox import neox_keys
from dsforge.foreign.programs.said import Said
from dsforge.recipe.document import Document, KeyPath, parse

_SCALAR = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s:"']+)\s*:\s*([^\s,\]}#]+)""")
"""A key and its value, as they stand on a line."""
_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
"""What the program's YAML reader, PyYAML, takes for a number with a fraction."""
_TRUTH = {"yes": True, "on": True, "no": False, "off": False}
"""Words that PyYAML takes for a truth value, as YAML did before 1.2."""


@dataclass(slots=True)
class Configuration:
    """Values by key, dashes as underscores at the top, and places by dotted key.

    `twice`: keys of more than one file; `overruled`: those of which the program keeps the last without a
    word. `texts`: numbers that are text to the program, as they are written. `namesakes`: files whose name
    another one has.
    """

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    twice: list[tuple[str, Place, Place]] = field(default_factory=list)
    overruled: list[tuple[str, Place, Place]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    namesakes: list[str] = field(default_factory=list)

    def place(self, key: str) -> Place:
        """Return where a key, or what encloses it, stands."""
        parts = key.split(".")
        for length in range(len(parts), 0, -1):
            if (found := self.places.get(".".join(parts[:length]))) is not None:
                return found
        return self.places[""]

    def whole(self, key: str) -> int | None:
        """Return a whole number of the top, None for anything else."""
        value = self.data.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def degrees(self) -> int:
        """Return the ranks of a replica; 0 stages are the program's word for one."""
        stages, shards = self.whole("pipe_parallel_size"), self.whole("model_parallel_size")
        return max(1, stages or 1) * max(1, shards or 1)

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Yield (dotted key, value) of everything but mappings."""
        yield from _leaves(self.data, "")


def _leaves(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def read_neox(texts: Sequence[tuple[str, str]]) -> Configuration:
    """Return files (text, name) as one configuration; DsforgeError DSF002, DSF003 for what is no YAML."""
    out = Configuration()
    names: set[str] = set()
    for text, file in texts:
        document = parse(text.removeprefix("\ufeff"), file)
        out.places.setdefault("", Place(file, 1, 1))
        if Path(file).name in names:
            out.namesakes.append(file)
        names.add(Path(file).name)
        numbers = _as_pyyaml(document, text.removeprefix("\ufeff").splitlines())
        for key, value in document.data.items():
            name = key.replace("-", "_")
            place = document.place((key,))
            if name in out.data:
                # It looks for a key as it is written among those that it has put underscores into.
                (out.twice if key == name else out.overruled).append((name, out.places[name], place))
                if key == name:
                    continue
            out.data[name] = value
            for path, where in document.places.items():
                if path and path[0] == key and all(isinstance(part, str) for part in path):
                    out.places[_dotted(name, path)] = where
            out.texts |= {_dotted(name, path): raw for path, raw in numbers.items() if path[0] == key}
    return out


def _dotted(name: str, path: KeyPath) -> str:
    return ".".join([name, *map(str, path[1:])])


def _as_pyyaml(document: Document, lines: Sequence[str]) -> dict[KeyPath, str]:
    """Give yes and no their truth values, and return the numbers, as written, that PyYAML takes for text."""
    texts: dict[KeyPath, str] = {}
    for path, place in document.places.items():
        if not path or not isinstance(path[-1], str) or place.line is None or place.column is None:
            continue
        written = _SCALAR.match(lines[place.line - 1], place.column - 1) if place.line <= len(lines) else None
        node: Any = document.data
        for part in path[:-1]:
            node = node[part]
        value = node[path[-1]]
        if written is None or not isinstance(value, float | str) or isinstance(value, bool):
            continue
        raw = written[1]
        if isinstance(value, float) and raw[0] not in "&*!" and not _FLOAT.fullmatch(raw):
            texts[path] = raw
        elif raw == value and raw.lower() in _TRUTH and raw in (raw.lower(), raw.upper(), raw.title()):
            node[path[-1]] = _TRUTH[raw.lower()]
    return texts


def said_by(configuration: Configuration) -> dict[str, Said]:
    """Return what is said by the option names of the flavour's rows, defaults included."""
    defaults = {"zero_optimization.stage": 0, "optimizer.params.eps": 1e-8, "optimizer.type": "Adam"}
    known = {key: row.default for key, row in neox_keys().items() if not row.is_dropped}
    said = {
        row.option: Said(row.option, defaults.get(row.option, known.get(row.option)))
        for row in flavour_of("gpt-neox").rows
    }
    said |= {key: Said(key, default) for key, default in known.items() if key not in said}
    for key, value in configuration.leaves():
        if key in neox_keys() and not neox_keys()[key].takes(value):
            continue  # told by the check
        said[key] = Said(key, value, configuration.place(key))
    return said


def replicas_of(configuration: Configuration) -> int | None:
    """Return the data-parallel size where the files name the number of GPUs."""
    world, product = configuration.whole("global_num_gpus"), configuration.degrees()
    return world // product if world and world % product == 0 else None
