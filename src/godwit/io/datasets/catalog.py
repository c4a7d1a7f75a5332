"""What data sets there are: the graphs of Groute's, Gunrock's and Hellås' papers, and common others.

Groute: Ben-Nun, Sutton, Pai and Pingali, ACM TOPC 2020. Gunrock: Pan, Wang, Wu, Yang and Owens, IPDPS
2017. Hellås: master's thesis, 2018. Their R-MAT graphs are made, not fetched: ``godwit.generators``.

Files are taken in forms that Godwit reads: graphs of LAW, and of DIMACS-10, as Matrix Market from the
SuiteSparse collection, which has the same graphs; likewise SNAP's undirected graphs whose edge lists
name each edge twice. SuiteSparse and the Network Repository wrap the file in an archive.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from godwit.errors import InputError, shown

PREFIX = "dataset:"
"""Of data sets on the command line."""


@dataclass(frozen=True)
class DataSet:
    """A graph that has a name and a home.

    :ivar name: what :func:`godwit.dataset` knows it by
    :ivar source: who publishes the file
    :ivar url: of the file
    :ivar vertices: their number, as published; None if it is not in the catalog
    :ivar edges: number of edges, of arcs where directed, as published: self-loops and parallel edges
        are counted by some and not by others
    :ivar directed: whether each arc stands for itself
    :ivar kind: such as "road", "social", "web"
    :ivar papers: which of the three papers measured it
    :ivar aliases: other names of it
    :ivar member: name of the graph's file in the archive at ``url``; "" if that is no archive
    """

    name: str
    source: str
    url: str
    vertices: int | None = None
    edges: int | None = None
    directed: bool = True
    kind: str = "matrix"
    papers: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    member: str = ""

    @property
    def file(self) -> str:
        """The file as it is downloaded: its place in the cache and on a mirror."""
        path = PurePosixPath(self.url.partition("://")[2])
        return "/".join(path.parts[-2:] if self.source == "SuiteSparse" else path.parts[-1:])

    @property
    def stored(self) -> str:
        """The file that is read: its place in the cache."""
        if not self.member:
            return self.file
        return str(PurePosixPath(self.file).with_name(f"{self.member}.zst"))


def named(text: str) -> DataSet:
    """The data set that is meant. :raises InputError: there is none; says what is called alike"""
    if not isinstance(text, str):
        raise InputError(f"name must be that of a data set, got {shown(text)}")
    name = text.removeprefix(PREFIX)
    known = _by_name()
    if name.casefold() in known:
        return known[name.casefold()]
    if _GROUP_AND_NAME.fullmatch(name):
        return _suitesparse(name)
    alike = difflib.get_close_matches(name.casefold(), known, 3, 0.6)
    names = dict.fromkeys(known[one].name for one in alike)
    hint = f"did you mean {' or '.join(names)}?" if names else "godwit.datasets() lists them"
    raise InputError(
        f"no data set is called {name!r}: {hint} "
        "(any of the SuiteSparse collection can be had as GROUP/NAME)"
    )


@cache
def catalog() -> tuple[DataSet, ...]:
    """All that have a name."""
    return (
        *(_dimacs_9(*row) for row in _rows(_DIMACS_9)),
        *(_suitesparse(*row) for row in _rows(_SUITESPARSE)),
        *(_snap(*row) for row in _rows(_SNAP)),
        *(_network_repository(*row) for row in _rows(_NETWORK_REPOSITORY)),
        *_OTHERS,
    )


@cache
def _by_name() -> dict[str, DataSet]:
    """Data sets by all of their names, in small letters."""
    found: dict[str, DataSet] = {}
    for one in catalog():
        for name in (one.name, *one.aliases):
            assert name.casefold() not in found, name
            found[name.casefold()] = one
    return found


def _rows(table: str) -> Iterator[list[str]]:
    return (line.split() for line in table.strip().splitlines())


def _words(text: str) -> tuple[str, ...]:
    """What a column lists; - is nothing."""
    return () if text == "-" else tuple(text.split(","))


def _dimacs_9(region: str, vertices: str, arcs: str, metric: str) -> DataSet:
    name = f"USA-road-{metric}.{region}"
    used = name == "USA-road-d.USA"
    return DataSet(
        name,
        "DIMACS-9",
        f"https://www.diag.uniroma1.it/challenge9/data/USA-road-{metric}/{name}.gr.gz",
        int(vertices),
        int(arcs),
        True,
        "road",
        ("Groute", "Hellås") if used else (),
        ("USA",) if used else (),
    )


def _suitesparse(
    path: str,
    vertices: str = "",
    edges: str = "",
    direction: str = "->",
    kind: str = "matrix",
    papers: str = "-",
    aliases: str = "-",
) -> DataSet:
    name = path.partition("/")[2]
    return DataSet(
        name if vertices else path,
        "SuiteSparse",
        f"https://sparse.tamu.edu/MM/{path}.tar.gz",
        int(vertices) if vertices else None,
        int(edges) if edges else None,
        direction == "->",
        kind,
        _words(papers),
        (path, *_words(aliases)),
        f"{name}.mtx",
    )


def _snap(
    name: str,
    vertices: str,
    edges: str,
    direction: str,
    kind: str,
    file: str,
    papers: str,
    aliases: str,
) -> DataSet:
    return DataSet(
        name,
        "SNAP",
        f"https://snap.stanford.edu/data/{file.replace('=', name)}.txt.gz",
        int(vertices),
        int(edges),
        direction == "->",
        kind,
        _words(papers),
        _words(aliases),
    )


def _network_repository(name: str, vertices: str, edges: str) -> DataSet:
    return DataSet(
        name,
        "Network Repository",
        f"https://nrvis.com/download/data/soc/{name}.zip",
        int(vertices),
        int(edges),
        False,
        "social",
        ("Gunrock",),
        (),
        f"{name}.mtx",
    )


_GROUP_AND_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*/[A-Za-z0-9][\w.+-]*", re.ASCII)

_REGIONS = """
NY 264346 733846
BAY 321270 800172
COL 435666 1057066
FLA 1070376 2712798
NW 1207945 2840208
NE 1524453 3897636
CAL 1890815 4657742
LKS 2758119 6885658
E 3598623 8778114
W 6262104 15248146
CTR 14081816 34292496
USA 23947347 58333344
"""

_DIMACS_9 = "\n".join(
    f"{row} {metric}" for metric in ("d", "t") for row in _REGIONS.strip().splitlines()
)
"""Region, vertices, arcs, metric: d is distance, t is travel time."""

_SUITESPARSE = """
DIMACS10/hugebubbles-00000 18318143 27470081 -- mesh Hellås
DIMACS10/hugebubbles-00010 19458087 29179764 -- mesh Hellås
DIMACS10/hugebubbles-00020 21198119 31790179 -- mesh Hellås
DIMACS10/coPapersCiteseer 434102 16036720 -- collaboration Gunrock,Hellås
DIMACS10/coPapersDBLP 540486 15245729 -- collaboration Hellås
DIMACS10/delaunay_n23 8388608 25165784 -- synthetic Hellås
DIMACS10/delaunay_n24 16777216 50331601 -- synthetic Hellås
DIMACS10/rgg_n_2_22_s0 4194304 30359198 -- synthetic Hellås
DIMACS10/rgg_n_2_23_s0 8388608 63501393 -- synthetic Hellås
DIMACS10/rgg_n_2_24_s0 16777216 132557200 -- synthetic Hellås
DIMACS10/kron_g500-logn20 1048576 44619402 -- synthetic Hellås
DIMACS10/kron_g500-logn21 2097152 91040932 -- synthetic Groute,Hellås kron21.sym
DIMACS10/asia_osm 11950757 12711603 -- road Hellås asia.osm
DIMACS10/europe_osm 50912018 54054660 -- road Hellås europe.osm
DIMACS10/germany_osm 11548845 12369181 -- road Hellås germany.osm
DIMACS10/road_usa 23947347 28854312 -- road
DIMACS10/road_central 14081816 16933413 -- road
DIMACS10/delaunay_n15 32768 98274 -- synthetic
DIMACS10/rgg_n_2_15_s0 32768 160240 -- synthetic
Schenk_AFE/af_shell10 1508065 25582130 -- matrix Hellås
GHS_psdef/audikw_1 943695 38354076 -- matrix Hellås
Schenk/nlpkkt120 3542400 46651696 -- matrix Hellås
Schenk/nlpkkt160 8345600 110586256 -- matrix Hellås
Schenk/nlpkkt200 16240000 215992816 -- matrix Hellås
Schenk/nlpkkt240 27993600 373239376 -- matrix Hellås
LAW/cnr-2000 325557 3216152 -> web
LAW/in-2004 1382908 16917053 -> web
LAW/eu-2005 862664 19235140 -> web
LAW/uk-2002 18520486 298113762 -> web Gunrock
LAW/indochina-2004 7414866 194109311 -> web Gunrock
LAW/arabic-2005 22744080 639999458 -> web Gunrock
LAW/uk-2005 39459925 936364282 -> web Gunrock
LAW/webbase-2001 118142155 1019903190 -> web Gunrock
LAW/it-2004 41291594 1150725436 -> web
LAW/sk-2005 50636154 1949412601 -> web Gunrock
LAW/hollywood-2009 1139905 56375711 -- collaboration Gunrock
LAW/dblp-2010 326186 807700 -- collaboration
LAW/ljournal-2008 5363260 79023142 -> social
SNAP/roadNet-CA 1965206 2766607 -- road
SNAP/roadNet-PA 1088092 1541898 -- road
SNAP/roadNet-TX 1379917 1921660 -- road
SNAP/as-Skitter 1696415 11095298 -- internet
SNAP/email-Enron 36692 183831 -- communication
SNAP/loc-Gowalla 196591 950327 -- social
SNAP/loc-Brightkite 58228 214078 -- social
SNAP/ca-AstroPh 18772 198110 -- collaboration
SNAP/ca-CondMat 23133 93497 -- collaboration
SNAP/ca-HepPh 12008 118521 -- collaboration
GAP/GAP-road 23947347 28854312 -- road
GAP/GAP-twitter 61578415 1468364884 -> social
GAP/GAP-web 50636151 1930292948 -> web
GAP/GAP-kron 134217726 2111632322 -- synthetic
GAP/GAP-urand 134217728 2147483370 -- synthetic
"""
"""Group and name, vertices, edges (-- undirected) or arcs (-> directed), kind, papers, aliases."""

_SNAP = """
soc-LiveJournal1 4847571 68993773 -> social = Groute,Gunrock,Hellås LiveJournal1
soc-Pokec 1632803 30622564 -> social soc-pokec-relationships - -
soc-Epinions1 75879 508837 -> social = - -
soc-Slashdot0811 77360 905468 -> social = - -
soc-Slashdot0902 82168 948464 -> social = - -
wiki-Vote 7115 103689 -> social = - -
wiki-Talk 2394385 5021410 -> communication = - -
email-EuAll 265214 420045 -> communication = - -
cit-HepPh 34546 421578 -> citation = - -
cit-HepTh 27770 352807 -> citation = - -
cit-Patents 3774768 16518948 -> citation = - -
web-BerkStan 685230 7600595 -> web = - -
web-Google 875713 5105039 -> web = - -
web-NotreDame 325729 1497134 -> web = - -
web-Stanford 281903 2312497 -> web = - -
amazon0302 262111 1234877 -> co-purchase = - -
amazon0312 400727 3200440 -> co-purchase = - -
amazon0505 410236 3356824 -> co-purchase = - -
amazon0601 403394 3387388 -> co-purchase = - -
p2p-Gnutella31 62586 147892 -> peer-to-peer = - -
twitter-2010 41652230 1468364884 -> social = Gunrock twitter-rv
com-Friendster 65608366 1806067135 -- social bigdata/communities/com-friendster.ungraph Gunrock -
com-Orkut 3072441 117185083 -- social bigdata/communities/com-orkut.ungraph Gunrock -
com-LiveJournal 3997962 34681189 -- social bigdata/communities/com-lj.ungraph - com-lj
com-Youtube 1134890 2987624 -- social bigdata/communities/com-youtube.ungraph - -
com-DBLP 317080 1049866 -- collaboration bigdata/communities/com-dblp.ungraph - -
com-Amazon 334863 925872 -- co-purchase bigdata/communities/com-amazon.ungraph - -
"""
"""Name, vertices, edges or arcs, kind, file (= is the name), papers, aliases."""

_NETWORK_REPOSITORY = """
soc-orkut 2997166 106349209
soc-sinaweibo 58655849 261321071
soc-twitter-2010 21297772 265025809
"""
"""Name, vertices, edges."""

_OTHERS = (
    DataSet(
        "OSM-eur-k",
        "KIT",
        "https://i11www.iti.kit.edu/extra/free_roadgraphs/osm-eur.zip",
        173789185,
        347997111,
        True,
        "road",
        ("Groute", "Hellås"),
        ("osm-eur",),
        "osm-eur.gr",
    ),
    DataSet(
        "twitter-mpi",
        "MPI-SWS",
        "http://twitter.mpi-sws.org/links-anon.txt.gz",
        54981152,
        1963263821,
        True,
        "social",
        ("Groute", "Gunrock", "Hellås"),
        ("twitter",),
    ),
    DataSet(
        "friendster",
        "KONECT",
        "http://konect.cc/files/download.tsv.friendster.tar.bz2",
        68349466,
        2586147869,
        True,
        "social",
        ("Gunrock",),
        (),
        "out.friendster",
    ),
)
