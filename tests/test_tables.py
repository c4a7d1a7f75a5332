"""Tables of arcs: CSV, Parquet, dataframes, both ways; and results as tables."""

from __future__ import annotations

import builtins
import gzip
import re
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit
from godwit.errors import FormatError, GodwitError, GraphTooLargeError, InputError, LostDataWarning
from godwit.graph import table_columns as table_module
from godwit.graph.csr import Graph
from godwit.io.graph_files import read, write
from graphs import graphs
from mutations import mutated

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


def identified(graph: Graph) -> tuple[Any, ...]:
    """What a graph is, whatever its vertices are counted as: their ids, its arcs, its direction."""
    ids = [graph.ids[v] for v in range(graph.vertex_count)]
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree()).tolist()
    weights = [0] * graph.arc_count if graph.weights is None else graph.weights.tolist()
    arcs = Counter(
        (ids[u], ids[v], w) for u, v, w in zip(tails, graph.targets.tolist(), weights, strict=True)
    )
    return Counter(ids), arcs, graph.directed, graph.is_weighted


def has_arcs(graph: Graph) -> np.ndarray[Any, np.dtype[Any]]:
    found = graph.out_degree() > 0
    found[graph.targets] = True
    return found


def csv_file(folder: Path, text: str | bytes, name: str = "edges.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def parquet_file(folder: Path, table: Any, **options: Any) -> Path:
    path = folder / "edges.parquet"
    pyarrow.parquet.write_table(table, path, **options)
    return path


@st.composite
def named_graphs(draw: Any, texts: st.SearchStrategy[str] = TEXTS) -> Graph:
    """Graphs whose vertices all have arcs, and ids of their own."""
    graph = draw(graphs())
    graph = Graph.from_edges(*_dense(graph), directed=graph.directed)
    n = graph.vertex_count
    kind = draw(st.sampled_from(["integer", "text"]))
    of_kind = st.integers(-(2**63), 2**63 - 1) if kind == "integer" else texts
    return graph.with_ids(draw(st.lists(of_kind, min_size=n, max_size=n, unique=True)) if n else 0)


def _dense(graph: Graph) -> tuple[Any, Any, Any]:
    vertex = np.cumsum(has_arcs(graph)) - 1
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    once = slice(None) if graph.directed else tails <= graph.targets
    weights = None if graph.weights is None else graph.weights[once]
    return vertex[tails[once]], vertex[graph.targets[once]], weights


def all_integers(ids: list[str]) -> bool:
    """Whether all are decimal numbers of 64 bits, perhaps between blanks."""
    return all(
        re.fullmatch(r"-?[0-9]+(\.0+)?", one.strip())
        and -(2**63) <= int(one.strip().split(".")[0]) < 2**63
        for one in ids
    )


def named_arcs(graph: Graph) -> list[tuple[Any, Any]]:
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    return list(zip(graph.ids.of(tails), graph.ids.of(graph.targets), strict=True))


class TestRoundTrip:
    @given(graphs())
    def test_csv(self, tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
        path = tmp_path_factory.mktemp("csv") / "edges.csv"
        if not has_arcs(graph).all():
            with pytest.raises(InputError, match="CSV cannot hold vertices without arcs"):
                write(graph, path)
            assert not path.exists()
            return
        write(graph, path)
        assert identified(read(path, directed=graph.directed)) == identified(graph)

    @given(graphs())
    def test_parquet(self, tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
        path = tmp_path_factory.mktemp("parquet") / "edges.parquet"
        write(graph, path)
        back = read(path)
        assert identified(back) == identified(graph)
        assert back.ids == graph.ids
        if graph.weights is not None:
            assert back.weights is not None
            assert back.weights.dtype == graph.weights.dtype

    @given(named_graphs())
    def test_ids_in_csv(self, tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
        path = tmp_path_factory.mktemp("csv") / "edges.csv"
        if graph.ids.kind == "text" and all_integers(graph.ids.to_arrow().to_pylist()):
            with pytest.raises(InputError, match="all integers"):
                write(graph, path)
            return
        write(graph, path)
        back = read(path, directed=graph.directed, format="csv")
        assert identified(back) == identified(graph)

    @given(named_graphs())
    def test_ids_in_parquet(self, tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
        path = tmp_path_factory.mktemp("parquet") / "edges.parquet"
        write(graph, path)
        assert identified(read(path)) == identified(graph)

    @given(named_graphs())
    def test_arrow(self, graph: Graph) -> None:
        assert identified(Graph.from_table(graph.to_arrow())) == identified(graph)

    @given(graphs())
    def test_pandas(self, graph: Graph) -> None:
        graph = Graph.from_edges(*_dense(graph), directed=graph.directed)
        back = Graph.from_table(graph.to_frame(), directed=graph.directed)
        assert identified(back) == identified(graph)

    @pytest.mark.parametrize("form", ["csv", "parquet"])
    @pytest.mark.parametrize("packing", ["", ".gz", ".bz2", ".xz", ".zst"])
    def test_compressed(self, tmp_path: Path, form: str, packing: str) -> None:
        graph = Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 2], [1.5, 2.0, 1e300, 0.1], directed=False)
        path = tmp_path / f"edges.{form}{packing}"
        write(graph, path)
        assert identified(read(path, directed=False)) == identified(graph)

    @pytest.mark.parametrize("form", ["csv", "parquet"])
    def test_many_pieces(self, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_module, "_TABLE_ROWS", 7)
        generator = np.random.default_rng(3)
        tails, heads = generator.integers(0, 50, (2, 400))
        graph = Graph.from_edges(tails, heads, generator.random(400), directed=False)
        path = tmp_path / f"edges.{form}"
        write(graph, path)
        assert identified(read(path, directed=False)) == identified(graph)

    @pytest.mark.parametrize(
        "weights",
        [
            np.array([1e20, 3], np.float64),
            np.array([0.1, 16777217], np.float32),
            np.array([np.inf, 1], np.float64),
            np.array([-(2**63), 2**63 - 1], np.int64),
            np.array([2**32 - 1, 0], np.uint32),
            np.array([5e-324, 1.7976931348623157e308], np.float64),
        ],
    )
    def test_csv_keeps_weights(self, tmp_path: Path, weights: Any) -> None:
        graph = Graph.from_edges([0, 1], [1, 0], weights)
        write(graph, tmp_path / "edges.csv")
        back = read(tmp_path / "edges.csv").weights
        assert back is not None
        assert back.dtype.kind == weights.dtype.kind.replace("u", "i")
        assert back.tolist() == weights.tolist()

    def test_nan_is_kept(self, tmp_path: Path) -> None:
        graph = Graph.from_edges([0, 1], [1, 0], [np.nan, 1.0])
        for name in ("edges.csv", "edges.parquet"):
            write(graph, tmp_path / name)
            np.testing.assert_array_equal(read(tmp_path / name).weights, graph.weights)

    @pytest.mark.parametrize("name", ["edges.csv", "edges.parquet", "edges.godwit"])
    def test_ids_that_are_objects_are_written_as_the_error_says(
        self, tmp_path: Path, name: str
    ) -> None:
        graph = Graph.from_edges([0], [1], ids=[("a", 1), ("b", 2)])
        with pytest.raises(InputError, match=r"graph.with_ids\(list\(map\(str, graph.ids\)\)\)"):
            write(graph, tmp_path / name)
        assert list(tmp_path.iterdir()) == []
        write(graph.with_ids(list(map(str, graph.ids))), tmp_path / name)
        assert named_arcs(read(tmp_path / name)) == [("('a', 1)", "('b', 2)")]

    @pytest.mark.parametrize("name", ["edges.csv", "edges.parquet"])
    def test_what_would_be_lost_is_refused(self, tmp_path: Path, name: str) -> None:
        lonely = Graph.from_edges([0], [1], vertex_count=3, ids=["a", "b", "c"])
        with pytest.raises(InputError, match="without arcs, such as 'c'"):
            write(lonely, tmp_path / name)
        assert list(tmp_path.iterdir()) == []


class TestColumns:
    @pytest.mark.parametrize(
        "header",
        [
            "source,target,weight",
            "Source,TARGET,Weight",
            "src;dst;w",
            "from\tto\tcost",
            "FromNodeId,ToNodeId,distance",
            ":START_ID,:END_ID,value",
            "u,v,length",
            "tail,head,dist",
            '"source_id","target_id","weights"',
            "node1,node2,weight",
            "here,there,weight",
        ],
    )
    def test_usual_names(self, tmp_path: Path, header: str) -> None:
        delimiter = next(one for one in ",;\t" if one in header)
        row = delimiter.join(["0", "1", "7"])
        graph = read(csv_file(tmp_path, f"{header}\n{row}\n", "any.txt"))
        assert identified(graph) == identified(Graph.from_edges([0], [1], [7]))

    @pytest.mark.parametrize("delimiter", [",", "\t"])
    def test_a_column_without_a_name(self, tmp_path: Path, delimiter: str) -> None:
        rows = [
            ["", "source", "target"],
            ["0", "5", "6"],
            ["1", "6", "7"],
        ]  # as pandas writes its index
        path = csv_file(tmp_path, "\n\n" + "\n".join(map(delimiter.join, rows)))
        assert identified(read(path)) == identified(Graph.from_edges([0, 1], [1, 2], ids=[5, 6, 7]))

    def test_in_any_order(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "weight,name,to,from\n7,x,1,0\n")
        assert identified(read(path)) == identified(Graph.from_edges([0], [1], [7]))
        table = pa.table({"weight": [7], "name": ["x"], "to": [1], "from": [0]})
        assert identified(read(parquet_file(tmp_path, table))) == identified(read(path))
        assert identified(Graph.from_table(table)) == identified(read(path))

    def test_as_named(self, tmp_path: Path) -> None:
        text = "id,source,friend,user,score\n9,9,1,0,7\n"
        path = csv_file(tmp_path, text)
        columns = ("user", "friend", "score")
        wanted = identified(Graph.from_edges([0], [1], [7]))
        assert identified(read(path, columns=columns)) == wanted
        unweighted = read(path, columns=columns[:2])
        assert identified(unweighted) == identified(Graph.from_edges([0], [1]))
        table = pyarrow.csv.read_csv(path)
        assert identified(read(parquet_file(tmp_path, table), columns=columns)) == wanted
        assert identified(Graph.from_table(table, *columns)) == wanted

    def test_texts_below_unusual_names(self, tmp_path: Path) -> None:
        text = "user,friend,score\nann,bob,3\n"
        weighted = identified(Graph.from_edges([0], [1], [3], ids=["ann", "bob"]))
        for name in ("edges.csv", "edges"):
            graph = read(csv_file(tmp_path, text, name), columns=("user", "friend", "score"))
            assert identified(graph) == weighted

    @pytest.mark.parametrize(
        "header", ["follower,followee", "person\tfriend", '"user";"friend"', "user,friend,since"]
    )
    @pytest.mark.parametrize("name", ["edges.csv", "edges.TSV", "edges.csv.gz"])
    def test_a_file_called_csv_has_a_header(self, tmp_path: Path, name: str, header: str) -> None:
        delimiter = next(one for one in ",;\t" if one in header)
        text = f"{header}\n" + delimiter.join(["ann", "bob", "x"][: len(header.split(delimiter))])
        packed = gzip.compress(text.encode()) if name.endswith("gz") else text
        assert named_arcs(read(csv_file(tmp_path, packed, name), weighted=False)) == [
            ("ann", "bob")
        ]

    @pytest.mark.parametrize(
        ("text", "arcs"),
        [
            ("1,bob\n2,cyd\n", [("1", "bob"), ("2", "cyd")]),
            ("1,2\n2,3\n", [(1, 2), (2, 3)]),
            ("ann,bob,3\nbob,cyd,2.5\n", [("ann", "bob"), ("bob", "cyd")]),
            ("ann;bob;3\nbob;cyd;2\n", [("ann", "bob"), ("bob", "cyd")]),
            ("ann bob\nbob cyd\n", [("ann", "bob"), ("bob", "cyd")]),
            ("# Directed graph\nann,bob\nbob,cyd\n", [("ann", "bob"), ("bob", "cyd")]),
        ],
    )
    def test_a_file_called_csv_without_header(
        self, tmp_path: Path, text: str, arcs: list[tuple[Any, Any]]
    ) -> None:
        assert named_arcs(read(csv_file(tmp_path, text))) == arcs

    @pytest.mark.parametrize("missing", ["NA", "NaN", "null", "None"])
    def test_a_missing_id_among_integers_is_reported(self, tmp_path: Path, missing: str) -> None:
        import pandas as pd

        path = csv_file(tmp_path, f"source,target\n1,2\n3,{missing}\n")
        with pytest.warns(LostDataWarning, match=rf"{missing} is the id of a vertex.*dropna"):
            assert read(path).ids.kind == "text"
        whole = Graph.from_table(pd.read_csv(path).dropna().convert_dtypes())
        assert list(whole.ids) == [1, 2]
        csv_file(tmp_path, f"source,target\n1,2\nBW,{missing}\n")  # a country: no warning
        assert missing in read(path).ids

    @pytest.mark.parametrize("rows", ["bob,cyd\ncyd,ann\n", "cyd,bob\n"])
    def test_a_first_line_of_ids_taken_for_names_is_reported(
        self, tmp_path: Path, rows: str
    ) -> None:
        path = csv_file(tmp_path, f"\nann,bob\n{rows}")
        with pytest.warns(LostDataWarning, match=r"line 2 .*ann, bob.*put .*source,target above"):
            graph = read(path)
        assert graph.arc_count == rows.count("\n")
        read(path, columns=("ann", "bob"))  # no warning where the caller says so
        csv_file(tmp_path, f"source,target\nann,bob\n{rows}")
        assert read(path).arc_count == rows.count("\n") + 1

    @pytest.mark.parametrize("name", ["edges.csv", "edges"])
    @pytest.mark.parametrize("comments", ["# hi\n", "\n% hi, you\n\n# a,b,c\r\n"])
    @pytest.mark.parametrize("header", ["source,target", "user,friend"])
    def test_comments_above_the_header(
        self, tmp_path: Path, name: str, comments: str, header: str
    ) -> None:
        path = csv_file(tmp_path, f"{comments}{header}\nann,bob\n\nbob,cyd\n", name)
        ways: list[dict[str, Any]] = [{"columns": header.split(",")}, {"format": "csv"}]
        if name.endswith("csv") or header == "source,target":
            ways.append({})
        for way in ways:
            assert named_arcs(read(path, **way)) == [("ann", "bob"), ("bob", "cyd")]

    def test_a_line_below_comments_is_named(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "# hi\n\n# ho\nsource,target\n0,1\n2,\n")
        with pytest.raises(FormatError, match="there is no target") as caught:
            read(path)
        assert caught.value.line == 6
        path = csv_file(tmp_path, f"#{'x' * 70000}\nsource,target\n0,1\n")
        with pytest.raises(FormatError, match="too long"):
            read(path, format="csv")

    @pytest.mark.parametrize(
        ("text", "name", "columns"),
        [
            ("#source,target\nann,bob\n", "edges", None),
            ("# source;target\nann;bob\n", "edges", None),
            ("#node1\tnode2\nann\tbob\n", "edges.tsv", None),
            ("# hi\n#user,friend\nann,bob\n", "edges.csv", None),
            ("#user,friend\nann,bob\n", "edges", ("user", "friend")),
            ("# friend, user\nuser,friend\nann,bob\n", "edges", ("user", "friend")),
        ],
    )
    def test_a_header_that_is_a_comment(
        self, tmp_path: Path, text: str, name: str, columns: tuple[str, str] | None
    ) -> None:
        assert named_arcs(read(csv_file(tmp_path, text, name), columns=columns)) == [("ann", "bob")]

    def test_comments_of_edge_lists(self, tmp_path: Path) -> None:
        text = "# Undirected graph\n# Nodes: 3 Edges: 1\n# FromNodeId\tToNodeId\n0\t1\n"
        for name in ("edges.tsv", "edges.txt"):
            graph = read(csv_file(tmp_path, text, name))
            assert (graph.vertex_count, graph.directed, graph.arc_count) == (3, False, 2)

    def test_a_third_column_of_another_name_is_no_weight(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "a,b,year\n0,1,1999\n")
        with pytest.warns(LostDataWarning, match="not read: 'year'"):
            assert not read(path).is_weighted

    @pytest.mark.parametrize(
        ("kinds", "directed"),
        [
            ("Undirected Undirected", False),
            ("undirected  Undirected", False),
            ("Directed Directed", True),
            ("road rail", True),
            ("Undirected road", True),
        ],
    )
    def test_kinds_of_edges_as_gephi_writes_them(
        self, tmp_path: Path, kinds: str, directed: bool
    ) -> None:
        first, second = kinds.split()
        rows = f"ann,bob,{first},0,,2\nbob,cyd,{second},1,,3\n"
        path = csv_file(tmp_path, f"Source,Target,Type,Id,Label,Weight\n{rows}")
        graph = read(path)
        assert graph.directed == directed
        assert graph.arc_count == (2 if directed else 4)
        assert read(path, directed=False).arc_count == 4
        assert read(path, columns=("Source", "Target", "Weight")).directed

    def test_edges_of_both_kinds_need_a_decision(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "Source,Target,Type,Weight\n0,1,Directed,1\n1,2,Undirected,1\n")
        with pytest.raises(FormatError, match=r"column Type calls some edges directed.*directed="):
            read(path)
        assert read(path, directed=True).arc_count == 2
        assert read(path, directed=False).arc_count == 4

    def test_one_usual_name_is_not_enough(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="cannot tell which columns"):
            read(csv_file(tmp_path, "id,source,friend\n0,1,2\n"))

    def test_missing_and_ambiguous(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="no column 'x'; the columns are 'a', 'b'"):
            read(csv_file(tmp_path, "a,b\n1,2\n"), columns=("a", "x"))
        with pytest.raises(FormatError, match="several columns are called 'a'"):
            read(csv_file(tmp_path, "a,a\n1,2\n"), columns=("a", "b"), format="csv")
        with pytest.raises(InputError, match="at least two columns"):
            Graph.from_table(pa.table({"a": [1]}))
        with pytest.raises(InputError, match="both, or neither"):
            Graph.from_table(pa.table({"a": [1], "b": [2]}), "a")

    @pytest.mark.parametrize("text", ["0,1\n1,2\n", "0\t1\t5\n", "0 1\n", "ann,bob\nbob,cyd\n"])
    def test_no_header_no_csv(self, tmp_path: Path, text: str) -> None:
        name = "edges" if text[0] == "a" else "edges.csv"
        assert read(csv_file(tmp_path, text, name)).arc_count == text.count("\n")
        if text[0] == "0":
            with pytest.raises(FormatError, match=r"must name columns|at least two columns"):
                read(csv_file(tmp_path, text), format="csv")


class TestCsv:
    @pytest.mark.parametrize(
        ("text", "arcs", "weights"),
        [
            ('"a","b"\n"c","a"\n', [("a", "b"), ("c", "a")], None),
            ('\n# c\na,"b ""c"" d"\nb,a\n', [("a", 'b "c" d'), ("b", "a")], None),
            ('"1";"2";2.5\n"2";"3";1\n', [(1, 2), (2, 3)], [2.5, 1]),
            ('"a"\t"b"\t"3"', [("a", "b")], [3]),
            ('"0x1","2"\n', [("0x1", "2")], None),
        ],
    )
    def test_quotes_without_header(
        self, tmp_path: Path, text: str, arcs: list[tuple[Any, Any]], weights: list[float] | None
    ) -> None:
        graph = read(csv_file(tmp_path, text, "edges"))
        assert named_arcs(graph) == arcs
        assert (None if graph.weights is None else graph.weights.tolist()) == weights

    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ('"a","b"\n"c","d","e"\n', 2, "the first row has 2 columns, this one 3"),
            ('"a","b","c"\n"c","d",5\n', 1, "the weight is not a number"),
            ('"a","b",1,2\n"c","d",3,4\n', 1, "the first line must name columns"),
        ],
    )
    def test_wrong_quotes_without_header(
        self, tmp_path: Path, text: str, line: int, message: str
    ) -> None:
        with pytest.raises(FormatError, match=message) as caught:
            read(csv_file(tmp_path, text, "edges"))
        assert caught.value.line == line

    @pytest.mark.parametrize("memory", [2**30, 2**19])  # at a stretch, and in blocks
    @pytest.mark.parametrize("digits", ["0x10", "-0X1f", "+5", "1_0", "1e3", "1.5"])
    def test_integers_are_decimal(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: str, memory: int
    ) -> None:
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(memory))
        rows = "1,2,3\n" * 20000
        text = f"source,target,weight\n{rows}1,{digits},3\n"
        graph = read(csv_file(tmp_path, text))
        assert sorted(graph.ids.of(np.arange(3))) == sorted(["1", "2", digits])
        path = csv_file(
            tmp_path, f"source,target,weight,note\n{rows.replace('3', '3,')}1,2,0x10,a\n"
        )
        with pytest.raises(FormatError, match="the weight is not a decimal number") as caught:
            read(path)
        assert caught.value.line == 20002
        assert list(read(path, weighted=False).ids) == [1, 2]

    @pytest.mark.parametrize("memory", [2**30, 2**20])  # at a stretch, and in blocks
    @pytest.mark.parametrize("name", ["edges.csv", "edges.el"])
    def test_integers_may_be_written_as_floats(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, memory: int
    ) -> None:
        import pandas as pd

        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(memory))
        frame = pd.DataFrame({"source": [1.0, -7, np.nan], "target": [2, 2**53 - 1, 3]})
        frame = pd.concat([frame.dropna()] * 20000)
        path = tmp_path / name
        frame.to_csv(path, index=False, header=name == "edges.csv")
        graph = read(path)
        assert list(graph.ids) == [-7, 1, 2, 2**53 - 1]
        assert set(named_arcs(graph)) == {(1, 2), (-7, 2**53 - 1)}

    def test_ids_that_are_not_names_are_not_written_as_floats(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match=r"written as 1\.0, and id_base needs integers"):
            read(csv_file(tmp_path, "source,target\n1.0,2.0\n"), id_base=1)

    def test_floats_beside_texts_are_texts(self, tmp_path: Path) -> None:
        graph = read(csv_file(tmp_path, "source,target\n1,1.0\n1.5,x\n"))
        assert list(graph.ids) == ["1", "1.0", "1.5", "x"]

    @pytest.mark.parametrize("memory", [2**30, 2**20])
    @pytest.mark.parametrize("delimiter", [", ", " ,", ",  ", "\t ", " ; "])
    def test_blanks_around_texts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delimiter: str, memory: int
    ) -> None:
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(memory))
        rows = "a,b c,1\n" * 30000 + '"b c",a,2\nb c,1,3\n'
        text = f"source,target,weight\n{rows}".replace(",", delimiter)
        graph = read(csv_file(tmp_path, text))
        assert list(graph.ids) == ["1", "a", "b c"]
        assert set(named_arcs(graph)) == {("a", "b c"), ("b c", "a"), ("b c", "1")}

    def test_blanks_in_quotes_belong_to_texts(self, tmp_path: Path) -> None:
        for id in (" a", "a ", "\ta"):
            for row in (f'"{id}",b', f'b,"{id}"', f'a,"{id}"\nb,a'):
                graph = read(csv_file(tmp_path, f"source,target\n{row}\n"))
                assert set(graph.ids) == {*row.replace('"', "").replace("\n", ",").split(",")}

    def test_quotes_where_pieces_of_the_file_meet(self, tmp_path: Path) -> None:
        """Fields in quotes are looked for in pieces of 1 MiB."""
        for before in range(1, 7):
            long = "x" * ((1 << 20) - len("a,") - before)
            graph = read(csv_file(tmp_path, f'source,target\na,{long}\nb," b"\nc, b\n'))
            assert set(graph.ids) == {"a", long, "b", " b", "c"}

    def test_blanks_alone_are_no_text(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "source,target\na,b\na, \n")
        with pytest.raises(FormatError, match="there is no target") as caught:
            read(path)
        assert caught.value.line == 3
        assert list(read(csv_file(tmp_path, 'source,target\na,""\n')).ids) == ["", "a"]

    @pytest.mark.parametrize("ids", [["1.0", "2.0"], ["7", "8.00"]])
    def test_texts_that_look_like_integers_are_refused(
        self, tmp_path: Path, ids: list[str]
    ) -> None:
        graph = Graph.from_edges([0], [1], ids=ids)
        with pytest.raises(InputError, match="all integers"):
            write(graph, tmp_path / "edges.csv")
        write(graph, tmp_path / "edges.el")
        assert list(read(tmp_path / "edges.el").ids) == ids

    def test_other_columns_may_be_hexadecimal(self, tmp_path: Path) -> None:
        graph = read(csv_file(tmp_path, "color,from,to\n0xff,0, 1\n"), columns=("from", "to"))
        assert named_arcs(graph) == [(0, 1)]

    def test_weights_are_decimal_infinite_or_no_numbers(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "source,target,weight\n0,0,inf\n0,0,-1e-3\n0,0,nan\n")
        np.testing.assert_array_equal(read(path).weights, [np.inf, -1e-3, np.nan])

    def test_texts_that_look_hexadecimal_are_written(self, tmp_path: Path) -> None:
        graph = Graph.from_edges([0], [1], ids=["0x1", "0x2"])
        write(graph, tmp_path / "edges.csv")
        assert named_arcs(read(tmp_path / "edges.csv")) == [("0x1", "0x2")]

    @pytest.mark.parametrize("ids", [[9, 5, 7], [0, 1, 3], [4, 5, 6], [-4, 2**62, 0]])
    def test_integers_are_names(self, tmp_path: Path, ids: list[int]) -> None:
        graph = Graph.from_edges([0, 1], [1, 2], ids=ids)
        write(graph, tmp_path / "edges.csv")
        assert identified(read(tmp_path / "edges.csv")) == identified(graph)

    def test_quotes_blank_lines_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        text = '\ufeff\n\r\n"source","target"\r\n"a,b","c""d"\r\n\r\n"e\nf","a,b"\r\n'
        graph = read(csv_file(tmp_path, text))
        assert graph.ids.of(np.arange(3)) == ["a,b", 'c"d', "e\nf"]
        assert graph.targets.tolist() == [1, 0]

    def test_only_a_header(self, tmp_path: Path) -> None:
        graph = read(csv_file(tmp_path, "source,target,weight"))
        assert (graph.vertex_count, graph.arc_count, graph.is_weighted) == (0, 0, True)

    def test_a_first_vertex(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "source,target\n5,6\n")
        graph = read(path, id_base=5)
        assert (graph.vertex_count, graph.ids.base, graph.targets.tolist()) == (2, 5, [1])
        with pytest.raises(FormatError, match="id 5 is smaller than that of the first vertex, 6"):
            read(path, id_base=6)

    def test_sparse_negative_and_textual_ids_are_relabelled(self, tmp_path: Path) -> None:
        for first, second in ((3, 2**40), (-1, 0), ("ann", "bob")):
            graph = read(csv_file(tmp_path, f"source,target\n{first},{second}\n"))
            assert graph.ids.of(np.arange(2)) == [first, second]
        graph = read(csv_file(tmp_path, f"source,target\n{2**64 - 1},7\n"))
        assert graph.ids.of(np.arange(2)) == [str(2**64 - 1), "7"]
        with pytest.raises(FormatError, match="relabel=False needs integers"):
            read(csv_file(tmp_path, "source,target\nann,bob\n"), relabel=False)
        with pytest.raises(GraphTooLargeError):
            read(csv_file(tmp_path, f"source,target\n0,{2**60}\n"), relabel=False)

    @pytest.mark.parametrize(
        ("rows", "line", "message"),
        [
            ("0,1,2\n1,2,x\n", 3, "the weight is not a number: '1,2,x'"),
            ('0,1,2\n1,2,"3,5"\n', 3, "numbers have a decimal point, and no commas: '1,2,3,5'"),
            ("0,1,2\n\n\n1,2,\n", 5, "there is no weight: '1,2,'"),
            ("0,1,2.5\n,2,1\n", 3, "there is no source: ',2,1'"),
            ("a,1,2\nb,,1\n", 3, "there is no target"),
            ("0,1,2\n1,2\n", 3, "the header has 3 columns, this one 2: '1,2'"),
            ("0,1,2\n1,2,3,4\n", 3, "the header has 3 columns, this one 4"),
            (f"0,1,2\n1,2,{10**19}\n", 3, "the weight does not fit in 64 bits"),
            (b"0,1,2\n\xff,2,1\n", 3, "not UTF-8"),
            ('"a\nb",1,2\n"c\nd",1,x\n', 5, "the weight is not a number"),
            ("0,1,1\n" * 30000 + "0,1,2,3\n", 30002, "this one 4"),
            ("0,1,1\n" * 30000 + "0,1,x\n", 30002, "the weight is not a number"),
        ],
    )
    def test_names_the_line(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        rows: str | bytes,
        line: int,
        message: str,
    ) -> None:
        rows = rows.encode() if isinstance(rows, str) else rows
        path = csv_file(tmp_path, b"source,target,weight\n" + rows)
        for memory in (2**30, 2**19):  # at a stretch, and in blocks
            monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(memory))
            with pytest.raises(FormatError) as error:
                read(path)
            assert error.value.line == line
            assert message in str(error.value)

    def test_an_open_quote(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, 'source,target\n0,"1\n' + "1,2\n" * 20)
        with pytest.raises(FormatError, match="is open at the end") as error:
            read(path)
        assert error.value.line == 2

    @pytest.mark.parametrize("texts", [False, True])
    @pytest.mark.parametrize("directed", [None, False])
    def test_in_blocks_as_at_a_stretch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: bool, directed: bool | None
    ) -> None:
        generator = np.random.default_rng(5)
        tails, heads = generator.integers(0, 300, (2, 30000))
        weights = [*range(29999), "0.5"]  # which only the last row tells
        name = "v{}".format if texts else str
        rows = (f"{name(u)},{name(v)},{w}" for u, v, w in zip(tails, heads, weights, strict=True))
        path = csv_file(tmp_path, "source,target,weight\n" + "\n".join(rows))
        whole = read(path, directed=directed)
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(2**21))
        seen: list[str] = []
        blocks = read(path, directed=directed, progress=lambda *call: seen.append(call[2]))
        assert "parsing" in seen
        np.testing.assert_array_equal(blocks.offsets, whole.offsets)
        np.testing.assert_array_equal(blocks.targets, whole.targets)
        np.testing.assert_array_equal(blocks.weights, whole.weights)
        assert blocks.ids == whole.ids


class TestParquet:
    @pytest.mark.parametrize("directed", [None, False])
    def test_in_blocks_as_at_a_stretch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directed: bool | None
    ) -> None:
        generator = np.random.default_rng(6)
        tails, heads = generator.integers(0, 300, (2, 90000))
        table = pa.table({"source": tails, "target": heads, "weight": generator.random(90000)})
        path = parquet_file(tmp_path, table, row_group_size=7000)
        whole = read(path, directed=directed)
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(2**23))
        blocks = read(path, directed=directed)
        np.testing.assert_array_equal(blocks.offsets, whole.offsets)
        np.testing.assert_array_equal(blocks.targets, whole.targets)
        np.testing.assert_array_equal(blocks.weights, whole.weights)

    @pytest.mark.parametrize(
        ("column", "ids"),
        [
            (pa.array([3, 4], pa.uint8()), [3, 4]),
            (pa.array([2**64 - 1, 4], pa.uint64()), [str(2**64 - 1), "4"]),
            (pa.array(["1", "01"]), ["1", "01"]),
            (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        ],
    )
    def test_ids_of_any_type(self, tmp_path: Path, column: Any, ids: list[Any]) -> None:
        path = parquet_file(tmp_path, pa.table({"source": column, "target": column}))
        graph = read(path, relabel=True)
        assert sorted(graph.ids.of(np.arange(2))) == sorted(ids)
        assert graph.targets.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            (
                {"source": [1.5], "target": [1]},
                r"source must be an integer or a text, .* double; .*whole numbers, and astype\(str\)",
            ),
            (
                {"source": [datetime(2026, 1, 1)], "target": [1]},
                r"timestamp.*; astype\(str\) makes texts",
            ),
            ({"source": [1], "target": [True]}, "target must be .* bool"),
            ({"source": [1, 2], "target": [1, None]}, "row 1: there is no target"),
            (
                {"source": [Decimal(1)], "target": [1]},
                r"decimal.*; astype\('int64'\) converts whole",
            ),
            ({"source": [1], "target": [1], "weight": ["x"]}, "weight must be a number"),
            (
                {"source": [1], "target": [1], "weight": [Decimal("1.5")]},
                r"weight must be a number, .* decimal.*; astype\('float64'\) converts it",
            ),
            (
                {"source": [1, 1], "target": [1, 1], "weight": [2, None]},
                "row 1: there is no weight",
            ),
            ({"source": [[1]], "target": [1]}, "source must be"),
            ({"a": [1]}, "at least two columns"),
        ],
    )
    def test_what_is_no_id_or_weight(
        self, tmp_path: Path, columns: dict[str, Any], message: str
    ) -> None:
        table = pa.table(columns)
        with pytest.raises(FormatError, match=message):
            read(parquet_file(tmp_path, table))
        with pytest.raises(InputError, match=message):
            Graph.from_table(table)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("godwit.directed", "perhaps"),
            ("godwit.vertices", "1"),
            ("godwit.vertices", "-1"),
            ("godwit.vertices", str(2**49)),
            ("godwit.id_base", "x"),
            ("godwit.id_base", str(2**31)),
            ("godwit.id_base", "1"),
        ],
    )
    def test_wrong_metadata(self, tmp_path: Path, key: str, value: str) -> None:
        table = Graph.from_edges([0], [1]).to_arrow()
        table = table.replace_schema_metadata({**table.schema.metadata, key.encode(): value})
        with pytest.raises(FormatError):
            read(parquet_file(tmp_path, table))

    def test_more_vertices_than_memory(self, tmp_path: Path) -> None:
        table = Graph.from_edges([0], [1]).to_arrow()
        metadata = {**table.schema.metadata, b"godwit.vertices": str(2**45)}
        with pytest.raises(GraphTooLargeError):
            read(parquet_file(tmp_path, table.replace_schema_metadata(metadata)))

    def test_truncated(self, tmp_path: Path) -> None:
        path = parquet_file(tmp_path, pa.table({"source": [1], "target": [2]}))
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(FormatError, match="truncated"):
            read(path)


@pytest.mark.filterwarnings("ignore::godwit.errors.LostDataWarning")  # "weight" may be damaged
@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("texts", [False, True])
def test_damage_is_noticed_or_harmless(tmp_path: Path, form: str, texts: bool) -> None:
    generator = np.random.default_rng(1)
    tails, heads = generator.integers(0, 20, (2, 60))
    graph = Graph.from_edges(tails, heads, generator.integers(0, 99, 60), vertex_count=20)
    if texts:
        graph = graph.with_ids([f"v{i:02}" for i in range(20)])
    path = tmp_path / f"edges.{form}"
    write(graph, path)
    content = path.read_bytes()
    read_well = 0
    for seed in range(500):
        path.write_bytes(mutated(content, seed))
        try:
            found = read(path, format=form)
        except GodwitError:
            continue
        read_well += 1
        Graph(found.offsets, found.targets, found.weights, directed=found.directed)
        if form == "parquet":  # which has checksums
            assert identified(found) == identified(graph)
    assert form == "parquet" or read_well > 0
    assert read_well < 500


class TestDataframes:
    def test_columns_that_pandas_has_numbered(self) -> None:
        import pandas as pd

        frame = pd.DataFrame([["a", "b", 5], ["b", "c", 7]])
        graph = Graph.from_table(frame, 0, 1, 2)
        assert (named_arcs(graph), graph.weights.tolist()) == ([("a", "b"), ("b", "c")], [5, 7])
        with pytest.raises(InputError, match="no column '3'; the columns are '0', '1', '2'"):
            Graph.from_table(frame, 0, 3)
        with pytest.raises(InputError, match="source must be the name of a column, got True"):
            Graph.from_table(frame, True, 1)

    @pytest.mark.parametrize("dtype", ["int64", "float64"])
    def test_a_matrix_is_no_table_of_arcs(self, dtype: str) -> None:
        import pandas as pd
        import scipy.sparse

        names = ["Ulm", "Bonn", "Jena"]
        table = pd.DataFrame([[0, 1, 0], [0, 0, 7], [0, 0, 0]], names, names, dtype)
        with pytest.raises(InputError, match=r"is a matrix, .*from_scipy\(.*with_ids\("):
            Graph.from_table(table)
        graph = Graph.from_scipy(scipy.sparse.csr_array(table.to_numpy())).with_ids(
            list(table.index)
        )
        assert named_arcs(graph) == [("Ulm", "Bonn"), ("Bonn", "Jena")]
        for columns in (None, pd.Index([0, 1])):  # rows have no names
            numbered = pd.DataFrame([[0, 1], [1, 2]], columns=columns)
            assert named_arcs(Graph.from_table(numbered)) == [(0, 1), (1, 2)]

    def test_integers_beside_texts(self) -> None:
        import pandas as pd

        frame = pd.DataFrame({"from": ["a", 1], "to": ["b", 2]})
        for table in (frame, frame[::-1]):  # Arrow has an error for each order
            with pytest.raises(
                InputError, match=r"column from .*integers or texts, not both: astype\(str\)"
            ):
                Graph.from_table(table)

    def test_of_any_library(self) -> None:
        import pandas as pd

        columns = {"src": ["a", "b", "c"], "dst": ["b", "c", "c"], "w": [1, 2, 3]}
        arrow = pa.table(columns)
        wanted = identified(Graph.from_table(arrow))
        frame = pd.DataFrame(columns)
        for table in (
            frame,
            frame.astype({"src": "category", "w": "Int64"}),
            frame.set_index(pd.Index([5, 6, 7])),
            pl.DataFrame(columns),
            pl.DataFrame(columns, schema_overrides={"src": pl.Categorical}),
            arrow.to_batches()[0],
            pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches()),
            columns,
        ):
            assert identified(Graph.from_table(table)) == wanted

    def test_by_the_older_protocol(self) -> None:
        class Old:
            def __init__(self, table: Any) -> None:
                self._table = table

            def __dataframe__(self, *args: Any, **options: Any) -> Any:
                return self._table.__dataframe__(*args, **options)

        table = pa.table({"src": [0, 1], "dst": [1, 0]})
        assert identified(Graph.from_table(Old(table))) == identified(Graph.from_table(table))

    def test_direction_and_weight(self) -> None:
        table = pa.table({"a": [0, 1], "b": [1, 2], "c": [5, 6]})
        assert not Graph.from_table(table).is_weighted
        graph = Graph.from_table(table, weight="c", directed=False)
        assert identified(graph) == identified(
            Graph.from_edges([0, 1], [1, 2], [5, 6], directed=False)
        )

    def test_relabel(self) -> None:
        table = pa.table({"a": [5, 7], "b": [7, 5]})
        for relabel in (None, True):
            assert list(Graph.from_table(table, relabel=relabel).ids) == [5, 7]
        counted = Graph.from_table(table, relabel=False)
        assert (counted.vertex_count, counted.ids.own) == (8, False)

    @pytest.mark.parametrize("table", [5, "edges.csv", None, [[0, 1]]])
    def test_what_is_no_table(self, table: Any) -> None:
        with pytest.raises(InputError, match="table must be of"):
            Graph.from_table(table)

    def test_what_is_no_table_yet(self) -> None:
        lazy = pytest.importorskip("polars").LazyFrame({"a": [0], "b": [1]})
        with pytest.raises(InputError, match=r"pass table\.collect\(\)"):
            Graph.from_table(lazy)

    @pytest.mark.parametrize("columns", [{}, {"a": [0]}, {"a": [0, 1], "b": [1]}, {"a": 0, "b": 1}])
    def test_dictionaries_that_are_no_tables(self, columns: dict[str, Any]) -> None:
        with pytest.raises(InputError):
            Graph.from_table(columns)

    def test_missing_values_of_pandas(self) -> None:
        import pandas as pd

        with pytest.raises(InputError, match="row 1: there is no source"):
            Graph.from_table(pd.DataFrame({"a": [0, None], "b": [1, 2]}))
        with pytest.raises(InputError, match="cannot be read"):
            Graph.from_table(pd.DataFrame({"a": [0, "x"], "b": [1, 2]}))

    def test_without_pandas(self, monkeypatch: pytest.MonkeyPatch) -> None:
        imported = builtins.__import__

        def fail(name: str, *args: Any) -> Any:
            if name == "pandas":
                raise ImportError
            return imported(name, *args)

        monkeypatch.setattr(builtins, "__import__", fail)
        with pytest.raises(InputError, match="pip install pandas"):
            Graph.from_edges([0], [1]).to_frame()


class TestResults:
    def test_tables(self) -> None:
        graph = Graph.from_edges([0, 1], [1, 2], [4, 3], vertex_count=4, ids=list("wxyz"))
        table = godwit.sssp(graph, "w").to_arrow()
        assert table.to_pydict() == {
            "vertex": ["w", "x", "y", "z"],
            "distance": [0, 4, 7, None],
            "predecessor": [None, "w", "x", None],
        }

    def test_integers_stay_exact_in_pandas(self) -> None:
        graph = Graph.from_edges([0], [1], [2**53 + 1], vertex_count=3)
        frame = godwit.sssp(graph, 0).to_frame()
        assert int(frame["distance"][1]) == 2**53 + 1
        assert frame["distance"].isna().tolist() == [False, False, True]
        assert frame["predecessor"].isna().tolist() == [True, False, True]


class TestColumnsThatAreNotRead:
    """A third column of an unusual name might be the weights: it is not dropped in silence."""

    @staticmethod
    def _file(folder: Path, ending: str) -> Path:
        path = folder / f"roads.{ending}"
        if ending == "csv":
            path.write_text("from,to,km\nUlm,Bonn,410\n")
        else:
            pa.parquet.write_table(pa.table({"from": ["Ulm"], "to": ["Bonn"], "km": [410]}), path)
        return path

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_a_warning_names_them_and_the_argument(self, tmp_path: Path, ending: str) -> None:
        path = self._file(tmp_path, ending)
        with pytest.warns(LostDataWarning, match=r"not read: 'km' .*'from', 'to', 'km'"):
            graph = read(path)
        assert not graph.is_weighted

    def test_the_command_line_is_quoted_for_the_shell(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, "from,to,Edge Weight\nUlm,Bonn,410\n")
        with pytest.warns(LostDataWarning, match="--columns 'from,to,Edge Weight'"):
            read(path)

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    @pytest.mark.parametrize(
        "said",
        [{"columns": ["from", "to"]}, {"columns": ["from", "to", "km"]}, {"weighted": False}],
    )
    def test_none_where_the_caller_chose(self, tmp_path: Path, ending: str, said: Any) -> None:
        graph = read(self._file(tmp_path, ending), **said)  # warnings are errors here
        assert graph.is_weighted == (len(said.get("columns", [])) == 3)

    def test_none_where_weights_are_recognized(self, tmp_path: Path) -> None:
        path = tmp_path / "roads.csv"
        path.write_text("from,to,cost,name\nUlm,Bonn,410,A8\n")
        assert read(path).weights.tolist() == [410]
