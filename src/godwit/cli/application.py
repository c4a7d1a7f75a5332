"""The commands under one roof: their names, their help, and one way to fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from godwit.cli import betweenness, components, conversion, filtering, inspection, paths, ranks
from godwit.cli.failures import PipeClosedError, exit_status
from godwit.graph.generators.spec import GENERATORS
from godwit.io.format_names import FORMATS

_HELP = (
    "Graph algorithms over all the devices of one machine.\n\n"
    f"GRAPH is a file ({', '.join(FORMATS)}; compressed by gzip, bzip2, xz, zstd or not; all "
    "recognized by their content; - for standard input), a generated graph (rmat:20, or "
    f"road:500x800,keep=0.7,seed=3,weights=1..64; {', '.join(GENERATORS)}), or a named data set "
    "(dataset:USA-road-d.NY)."
)

_EXIT_STATUS = (
    "Exit status: 0 done, 2 bad input or a failed run (stderr says why), 3 a result that has not "
    "converged, 130 interrupted."
)
_EPILOG = f"""Examples:

  godwit sssp USA-road-d.NY.gr.xz --source 1 --output distances.npy

  godwit bfs rmat:20 --source max-degree --devices cuda

  godwit components edges.npy --devices cuda

  godwit filter values.npy "x > 0.5" --output kept.npy

  godwit info web.mtx.gz --plot

  godwit convert web.mtx.gz web.godwit

  godwit generate rmat:20,weights=1..64 rmat.godwit

  godwit partition roads.gr --parts 4 --method metis

  godwit devices

{_EXIT_STATUS}
"""


class _Group(TyperGroup):
    """All commands; whatever they raise ends as an exit status."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, and exit with the status."""
        arguments = list(sys.argv[1:] if args is None else args)

        def run() -> Any:
            return super(_Group, self).main(
                arguments, prog_name or "godwit", complete_var, standalone_mode=False, **extra
            )

        # Read from the arguments: the error may come before they are parsed.
        sys.exit(exit_status(run, traceback=lambda: arguments[:1] == ["--traceback"]))

    def invoke(self, ctx: Any) -> Any:
        """Call the command; a closed pipe is ours to handle."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosedError from error


app = typer.Typer(
    cls=_Group,
    name="godwit",
    help=_HELP,
    epilog=_EPILOG,
    add_completion=False,
    rich_markup_mode="rich",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from godwit import __version__

        print(f"godwit {__version__}")
        raise typer.Exit


@app.callback()
def _godwit(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Say which version."
        ),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", help="Show where an internal error happened (to report it)."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            print(text)


app.command("bfs", help=paths.BFS_HELP, epilog=paths.BFS_EPILOG)(paths.paths)
app.command("sssp", help=paths.SSSP_HELP, epilog=paths.SSSP_EPILOG)(paths.paths)
app.command("pagerank", help=ranks.PAGERANK_HELP, epilog=ranks.PAGERANK_EPILOG)(ranks.pagerank)
app.command(
    "betweenness", help=betweenness.BETWEENNESS_HELP, epilog=betweenness.BETWEENNESS_EPILOG
)(betweenness.betweenness)
app.command("components", help=components.COMPONENTS_HELP, epilog=components.COMPONENTS_EPILOG)(
    components.components
)
app.command("filter", help=filtering.FILTER_HELP, epilog=filtering.FILTER_EPILOG)(
    filtering.filter_file
)
app.command("convert", epilog=conversion.CONVERT_EPILOG)(conversion.convert)
app.command("generate", epilog=conversion.GENERATE_EPILOG)(conversion.generate)
app.command("info", epilog=inspection.INFO_EPILOG)(inspection.info)
app.command("partition", epilog=inspection.PARTITION_EPILOG)(inspection.partition)
app.command("devices", epilog=inspection.DEVICES_EPILOG)(inspection.devices)


def command() -> Any:
    """The group of all commands, ready to be called."""
    return typer.main.get_command(app)
