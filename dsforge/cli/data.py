"""`dsforge data`: text to indexed data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsforge.base.errors import DsforgeError
from dsforge.cli import output
from dsforge.cli.options import JsonOption
from dsforge.cli.panels import PanelGroup

app = typer.Typer(help="Text to indexed data sets.", cls=PanelGroup)


@app.callback()
def _group() -> None:
    """Keep `prep` a subcommand while it is the only one."""


@app.command("prep")
def prep(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text files, .jsonl files or folders.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Prefix of the files to write.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json. Default: train one.")] = None,
    vocab: Annotated[int, typer.Option(min=2, max=1_000_000, help="Vocabulary to train.")] = 32_768,
    json_key: Annotated[str, typer.Option(help="Key of the text in .jsonl records.")] = "text",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a data set of this prefix.")
    ] = False,
    builtin: Annotated[
        bool, typer.Option("--builtin", help="Make the built-in corpus; print its prefix.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write PREFIX.bin, PREFIX.idx and PREFIX.tokenizer.json, which Megatron reads too."""
    from dsforge.data.prepare import builtin_corpus, prepare

    if json:
        output.use_json()
    if builtin:
        output.line(str(builtin_corpus(vocab)))
        return
    if not files or out is None:
        raise DsforgeError("DSF056", "files and --out are needed", hint="`dsforge data prep FILES -o PREFIX`")
    made = prepare(files, out, tokenizer=tokenizer, vocab=vocab, json_key=json_key, overwrite=overwrite)
    if json:
        output.as_json(
            {
                "prefix": str(made.prefix),
                "documents": made.documents,
                "tokens": made.tokens,
                "vocab": made.vocab,
                "tokenizer": str(made.tokenizer),
            }
        )
    else:
        output.line(
            f"{made.prefix}: {made.documents} documents, {made.tokens} tokens, vocabulary {made.vocab}"
        )
        output.note(f"in the recipe: model.vocab at least {made.vocab}, data: {{train: {made.prefix}}}")
