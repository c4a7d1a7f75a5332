"""The command line ``godwit``: its group of commands, and their help pages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from godwit.cli import (
    betweenness,
    closeness,
    communities,
    components,
    convert,
    core,
    devices,
    distances,
    filter_array,
    greedy,
    info,
    pagerank,
    partition,
    paths,
    power_iteration,
    similarity,
    spanning_forest,
    topological,
    triangles,
    truss,
    walks,
)
from godwit.cli.failures import PipeClosedError, UsageError, exit_status
from godwit.cli.processes import check_launch
from godwit.graph.generators.spec import GENERATORS, is_spec
from godwit.io.format_names import FORMATS

_HELP = (
    "Graph algorithms on all GPUs or CPU cores of one machine.\n\n"
    f"GRAPH is a file ({', '.join(FORMATS)}; compressed by gzip, bzip2, xz, zstd or not; all "
    "recognized by their content; - for standard input), a generated graph (rmat:20, or "
    f"road:500x800,keep=0.7,seed=3,weights=1..64; {', '.join(GENERATORS)}), or a named data set "
    "(dataset:USA-road-d.NY)."
)

_EXIT_STATUS = (
    "Exit status: 0 done, 2 bad input or a failed run (stderr says why), 3 a result that has not "
    "converged, 130 interrupted."
)
_EXAMPLES = """
godwit sssp USA-road-d.NY.gr.xz --source 1 --output distances.npy
godwit bfs rmat:20 --source max-degree --devices cuda
godwit components edges.npy --devices cuda
godwit filter values.npy "x > 0.5" --output kept.npy
godwit info web.mtx.gz --plot degrees.pdf
godwit convert web.mtx.gz web.godwit
godwit generate rmat:20,weights=1..64 rmat.godwit
godwit partition roads.gr --parts 4 --method metis
godwit devices
"""


def _epilog(examples: str, *paragraphs: str) -> str:
    """Return the end of a help page: examples, one a line, and paragraphs."""
    lines = [f"  {line}" for line in examples.split("\n") if line]
    return "\n\n".join(["Examples:", *lines, *paragraphs])


_COMPLETION_HELP = {
    "install_completion": "Set up completion by the Tab key.",
    "show_completion": "Print the script of completion.",
}
"""Texts for the options of Typer, whose own take three lines of 80 columns."""


_OF_OTHER_LIBRARIES = {
    other: command
    for command, others in {
        "bfs": "breadth-first-search unweighted-shortest-paths",
        "sssp": "dijkstra bellman-ford delta-stepping shortest-path shortest-paths",
        "distances": "apsp multi-source-bfs",
        "pagerank": "pr page-rank",
        "eigenvector": "eigenvector-centrality",
        "katz": "katz-centrality",
        "betweenness": "bc betweenness-centrality edge-betweenness",
        "closeness": "closeness-centrality",
        "harmonic": "harmonic-centrality",
        "eccentricity": "radius",
        "triangles": "tc triangle-count triangle-counting",
        "clustering": "lcc transitivity clustering-coefficient average-clustering",
        "similarity": "jaccard overlap sorensen adamic-adar resource-allocation",
        "components": "cc wcc weakly-connected-components connected-components",
        "strong-components": "scc strongly-connected-components",
        "topological-generations": "toposort topological-sort topological-order dag",
        "spanning-forest": "mst msf minimum-spanning-tree minimum-spanning-forest kruskal boruvka",
        "core": "kcore k-core coreness core-number kshell k-shell",
        "truss": "ktruss k-truss truss-number",
        "independent-set": "mis maximal-independent-set",
        "coloring": "color colour colouring greedy-color",
        "labels": "lpa cdlp label-propagation",
        "walks": "node2vec random-walk random-walks",
        "leiden": "communities community",
        "generate": "gen rmat",
        "info": "stats summary describe diameter",
    }.items()
    for other in others.split()
}
"""Names of commands by those that other libraries and textbooks give to their algorithms."""


def _without_types_of_flags(params: list[Any]) -> list[Any]:
    """Return the options, flags among them without the type that help would show: ``<bool>``."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class _Command(TyperCommand):
    """A command, whose help shows no types of flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options."""
        return _without_types_of_flags(super().get_params(ctx))


class _Group(TyperGroup):
    """Group of all commands, whose exceptions become exit statuses."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, those of completion with short texts."""
        params = _without_types_of_flags(super().get_params(ctx))
        for param in params:
            if param.name in _COMPLETION_HELP:
                param.help = _COMPLETION_HELP[param.name]
        return params

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command, and exit with its status."""
        arguments = list(sys.argv[1:] if args is None else args)

        def run() -> Any:
            return super(_Group, self).main(
                arguments, prog_name or "godwit", complete_var, standalone_mode=False, **extra
            )

        # Not from the parsed option, as an error may precede parsing.
        sys.exit(exit_status(run, traceback=arguments[:1] == ["--traceback"]))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; for the name that another library gives to one, name it in the error."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            name = _OF_OTHER_LIBRARIES.get(args[0].lower().replace("_", "-"))
            if name is not None:
                error.message = f"No such command {args[0]!r}. Did you mean {name!r}?"
            elif is_spec(args[0]) or Path(args[0]).is_file():
                error.message = (
                    f"No such command {args[0]!r}. A command comes first: godwit info {args[0]}"
                )
            raise

    def invoke(self, ctx: Any) -> Any:
        """Call the command; raise PipeClosedError for BrokenPipeError, which Typer would handle itself."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosedError from error


app = typer.Typer(
    cls=_Group,
    name="godwit",
    help=_HELP,
    epilog=_epilog(_EXAMPLES, _EXIT_STATUS),
    rich_markup_mode="rich",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from godwit import __version__

        print(f"godwit {__version__}")
        raise typer.Exit


@app.callback()
def _godwit(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", help="Show the traceback of an internal error, to report it."),
    ] = False,
) -> None:
    check_launch(context.invoked_subcommand)
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            print(text)


_SUMMARIES = {
    "bfs": "Breadth-first search: distances in arcs from a vertex.",
    "sssp": "Shortest paths: least sums of weights from a vertex.\n\n"
    "Weights must not be negative; without weights each arc counts 1.",
    "closeness": "Closeness centrality: how near all vertices are to a vertex.\n\n"
    "That is the number of vertices that reach it over the sum of their distances to it, times the share "
    "of the vertices that do.",
    "harmonic": "Harmonic centrality: the sum of 1 / distance over the vertices that reach a vertex.",
    "eccentricity": "Eccentricity: the largest distance from a vertex to any other.\n\n"
    "It is infinite for a vertex that does not reach all others.",
}
for _name, _function, *_epilog_parts in (
    ("bfs", paths.paths, paths.BFS_EXAMPLES),
    ("sssp", paths.paths, paths.SSSP_EXAMPLES),
    ("distances", distances.distances, distances.EXAMPLES),
    ("pagerank", pagerank.pagerank, pagerank.EXAMPLES),
    ("eigenvector", power_iteration.eigenvector, power_iteration.EIGENVECTOR_EXAMPLES),
    ("katz", power_iteration.katz, power_iteration.KATZ_EXAMPLES),
    ("hits", power_iteration.hits, power_iteration.HITS_EXAMPLES),
    ("betweenness", betweenness.betweenness, betweenness.EXAMPLES),
    ("closeness", closeness.closeness, closeness.CLOSENESS_EXAMPLES),
    ("harmonic", closeness.closeness, closeness.HARMONIC_EXAMPLES),
    ("eccentricity", closeness.closeness, closeness.ECCENTRICITY_EXAMPLES),
    ("triangles", triangles.triangles, triangles.TRIANGLES_EXAMPLES),
    ("clustering", triangles.clustering, triangles.CLUSTERING_EXAMPLES),
    ("similarity", similarity.similarity, similarity.EXAMPLES),
    ("components", components.components, components.EXAMPLES),
    ("spanning-forest", spanning_forest.spanning_forest, spanning_forest.EXAMPLES),
    ("walks", walks.walks, walks.EXAMPLES),
    ("core", core.core, core.EXAMPLES),
    ("truss", truss.truss, truss.EXAMPLES),
    ("independent-set", greedy.independent_set, greedy.SET_EXAMPLES),
    ("coloring", greedy.coloring, greedy.COLORING_EXAMPLES),
    ("strong-components", components.strong_components, components.STRONG_EXAMPLES),
    ("topological-generations", topological.topological_generations, topological.EXAMPLES),
    ("louvain", communities.louvain, communities.LOUVAIN_EXAMPLES),
    ("leiden", communities.leiden, communities.LEIDEN_EXAMPLES),
    ("labels", communities.labels, communities.LABELS_EXAMPLES),
    ("filter", filter_array.filter_file, filter_array.EXAMPLES),
    ("convert", convert.convert, convert.CONVERT_EXAMPLES, convert.FORMATS_HELP),
    ("generate", convert.generate, convert.GENERATE_EXAMPLES, convert.GENERATORS_HELP),
    ("info", info.info, info.EXAMPLES),
    ("partition", partition.partition, partition.EXAMPLES),
    ("devices", devices.devices, devices.EXAMPLES),
):
    _texts = [_SUMMARIES.get(_name), _function.__doc__]
    app.command(
        _name, cls=_Command, help="\n\n".join(filter(None, _texts)), epilog=_epilog(*_epilog_parts)
    )(_function)


def command() -> Any:
    """Return the group of all commands."""
    return typer.main.get_command(app)
