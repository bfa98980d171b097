"""Help in plain text, commands under their panels. Rich takes longer to load than a whole help to print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperGroup

from dsforge.base.exits import ExitCode
from dsforge.cli import output

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter  # the types of the methods below; typer exports no others

_OTHERS = "Commands"


class PanelGroup(TyperGroup):
    """A group whose help lists each panel's commands, in the order they were added."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Show the help of a group that was given nothing to do, which is a usage error."""
        if not args and not ctx.resilient_parsing:
            output.note_raw(ctx.get_help())
            ctx.exit(int(ExitCode.USAGE))
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write a section a panel, each command with the whole first sentence of its help."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                sentence = command.get_short_help_str(limit=10 * formatter.width)
                panels.setdefault(panel if isinstance(panel, str) else _OTHERS, []).append((name, sentence))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
