"""Small Graphs by hand, and trees for them, written as they are printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from hjit.sched.language.tree import Compute, Loop, Node, Root, Store
from hjit.trace.ir.expressions import Const, Expr, Load, Op
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, identity
from hjit.trace.ir.poly import Dim, Indirect, Sym, boundary, poly

F4, U1 = np.dtype(np.float32), np.dtype(np.uint8)
Y, X, C, R = (poly(Dim(k)) for k in range(4))
H, W = poly(Sym("h")), poly(Sym("w"))
SIZES = {"h": 24, "w": 40, "k": 6}


# -- graphs by hand


def f(name: str, *args: Expr) -> Expr:
    return Op(name, args, args[-1].dtype)


def add(*args: Expr) -> Expr:
    first, *rest = args
    return f("add", first, add(*rest)) if rest else first


def at(source: str, *index: Any, dtype: Any = F4) -> Expr:
    return Load(source, tuple(map(poly, index)), dtype)


def source(name: str, *shape: Any, dtype: Any = F4) -> Input:
    return Input(name, np.dtype(dtype), tuple(map(poly, shape)), (None,) * (len(shape) - 1) + (1,))


def stage(name: str, shape: Iterable[Any], value: Expr | None, *updates: Definition) -> Stage:
    dtype = value.dtype if value is not None else updates[0].value.dtype
    return Stage(name, dtype, tuple(map(poly, shape)), value, updates)


def total(name: str, dims: Iterable[Any], rdims: Iterable[Any], value: Expr) -> Definition:
    dims = tuple(map(poly, dims))
    target = identity(len(dims))
    return Definition(dims, tuple(map(poly, rdims)), target, f("add", Load(name, target, value.dtype), value), "add")


def graph(inputs: Iterable[Input], *stages: Stage) -> Graph:
    return Graph(tuple(inputs), (), stages, (stages[-1].name,))


IMAGE = source("img", H, W)
ZERO = Const(0, F4)

GRAPHS = {
    "point": graph([IMAGE, source("other", H, W)], stage("out", (H, W), f("multiply", at("img", Y, X), f("sqrt", at("other", Y, X))))),
    "rows": graph(
        [IMAGE],
        stage("rows", (H - 2, W), add(at("img", Y, X), at("img", Y + 1, X), at("img", Y + 2, X))),
        stage("out", (H - 2, W - 2), add(at("rows", Y, X), at("rows", Y, X + 1), at("rows", Y, X + 2))),
    ),
    "cols": graph(
        [IMAGE],
        stage("cols", (H, W - 2), add(at("img", Y, X), at("img", Y, X + 1), at("img", Y, X + 2))),
        stage("out", (H - 2, W - 2), add(at("cols", Y, X), at("cols", Y + 1, X), at("cols", Y + 2, X))),
    ),
    "padded": graph(
        [IMAGE],
        stage("rows", (H, W), add(*(at("img", boundary("clamp", Y + k, H), X) for k in (-1, 0, 1)))),
        stage("out", (H, W), add(*(at("rows", boundary("clamp", Y + k, H), boundary("clamp", X + j, W)) for k in (-1, 0, 1) for j in (-1, 0, 1)))),
    ),
    "mirrored": graph(
        [IMAGE],
        stage("rows", (H, W), add(*(at("img", boundary("reflect", Y + k, H), X) for k in (-2, 0, 2)))),
        stage("out", (H, W), add(*(at("rows", boundary("symmetric", Y + k, H), X) for k in (-1, 0, 1)))),
    ),
    "deep": graph(
        [IMAGE],
        stage("a", (H, W), f("exp", at("img", Y, X))),
        stage("b", (H - 2, W), add(*(at("a", Y + k, X) for k in range(3)))),
        stage("out", (H - 4, W - 2), add(*(at("b", Y + k, X + k) for k in range(3)))),
    ),
    "chain": graph(
        [IMAGE],
        stage("a", (H, W), f("exp", at("img", Y, X))),
        stage("b", (H - 2, W - 2), add(*(at("a", Y + k, X + j) for k in range(3) for j in range(3)))),
        stage("out", (H - 4, W - 4), add(*(at("b", Y + k, X + j) for k in range(3) for j in (0, 2)), at("a", Y + 2, X + 2))),
    ),
    "down and up": graph(
        [IMAGE],
        stage("half", (H // 2, W // 2), add(*(at("img", Y * 2 + k, X * 2 + j) for k in (0, 1) for j in (0, 1)))),
        stage("out", (H, W), add(at("half", Y // 2, X // 2), at("img", Y, X))),
    ),
    "sums": graph(
        [IMAGE],
        stage("sums", (W,), ZERO, total("sums", (W,), (H,), at("img", X, Y))),
        stage("out", (H, W), add(at("img", Y, X), at("sums", X))),
    ),
    "window": graph(
        [IMAGE, source("taps", 3, 3)],
        stage("conv", (H - 2, W - 2), ZERO, total("conv", (H - 2, W - 2), (3, 3), f("multiply", at("img", Y + C, X + R), at("taps", C, R)))),
        stage("out", (H - 2, W - 2), f("sqrt", at("conv", Y, X))),
    ),
    "product": graph(
        [source("p", H, poly(Sym("k"))), source("q", poly(Sym("k")), W)],
        stage("out", (H, W), ZERO, total("out", (H, W), (poly(Sym("k")),), f("multiply", at("p", Y, C), at("q", C, X)))),
    ),
    "pieces": graph(
        [IMAGE],
        stage("both", (H, W * 2), None,
              Definition((H, W), (), (Y, X * 2), f("sqrt", at("img", Y, X))), Definition((H, W), (), (Y, X * 2 + 1), f("exp", at("img", Y, X)))),
        stage("out", (H, W * 2 - 4), add(at("both", Y, X), at("both", Y, X + 4))),
    ),
    "updated": graph(
        [IMAGE],
        stage("both", (H, W), f("sqrt", at("img", Y, X)), Definition((H, poly(4)), (), (Y, X + 3), at("img", Y, X))),
        stage("out", (H, W), add(at("both", Y, X), at("img", Y, X))),
    ),
    "gather": graph(
        [source("codes", H, W, dtype=U1), source("table", 256)],
        stage("curve", (256,), f("exp", at("table", Y))),
        stage("out", (H, W), f("multiply",
              at("curve", Indirect(at("codes", Y, X, dtype=U1), None)), at("table", Indirect(at("codes", Y, 0, dtype=U1), None)))),
    ),
    "channels": graph(
        [source("rgb", H, W, 3)],
        stage("gray", (H, W), add(*(at("rgb", Y, X, k) for k in range(3)))),
        stage("out", (H, W, 3), f("multiply", at("rgb", Y, X, C), at("gray", Y, X))),
    ),
    "scan": graph(
        [IMAGE],
        stage("run", (H, W), at("img", Y, X), Definition((H,), (W - 1,), (Y, X + 1), add(at("run", Y, X), at("run", Y, X + 1)), "sequential")),
        stage("out", (H, W), add(at("run", Y, X), at("img", Y, X))),
    ),
}  # fmt: skip


# -- trees as they are printed


def tree(text: str) -> Root:
    """The tree that is printed so."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines() if line.strip()]

    def children(k: int) -> tuple[tuple[Node, ...], int]:
        """The nodes from line `k` on that are as deep, and the line after them."""
        found: list[Node] = []
        depth = lines[k][0] if k < len(lines) else -1
        while k < len(lines) and lines[k][0] == depth:
            line = lines[k][1]
            inner, k = children(k + 1) if k + 1 < len(lines) and lines[k + 1][0] > depth else ((), k + 1)
            found.append(node(line, inner))
        return tuple(found), k

    found, end = children(0)
    assert end == len(lines), lines[end]
    return Root(found)


def node(line: str, children: tuple[Node, ...]) -> Node:
    """The node that is printed so."""
    word, rest = line.split(" ", 1)
    if word == "compute":
        name, *numbers = rest.replace(",", "").split()
        return Compute(name, tuple(map(int, numbers)) or (0,))
    if word == "store":
        pattern = r"(\w+)(?: in order ([\d, ]+))?(?: aligned to ([\d, ]+))?(?:, (\w+))?"
        name, order, align, memory = re.fullmatch(pattern, rest).groups()  # type: ignore[union-attr]
        axes = (tuple(map(int, x.split(","))) if x else () for x in (order, align))
        return Store(name, children, *axes, memory=memory or "heap")
    name, dims, size, tail = re.fullmatch(r"(\w+)\.(d\d(?:\.d\d)*)(?: of (\d+))?(?:, (\w+))?", rest).groups()  # type: ignore[union-attr]
    ks = tuple(int(x[1:]) for x in dims.split("."))
    return Loop(name, ks if len(ks) > 1 else ks[0], word, None if size is None else int(size), children, tail or "auto")  # type: ignore[arg-type]


TREES = {
    "nothing but loops": ("point", """
        store out
          serial out.d1
            serial out.d0
              compute out"""),
    "rows in parallel, vectors that do not fit": ("point", """
        store out
          parallel out.d0
            serial out.d1
              vector out.d1 of 16
                compute out"""),
    "tiles of blocks of vectors": ("point", """
        store out
          parallel out.d0
            serial out.d1
              serial out.d0 of 8
                serial out.d1 of 32
                  unroll out.d0 of 2
                    unroll out.d1 of 16
                      vector out.d1 of 8
                        compute out"""),
    "parallel tiles": ("point", """
        store out
          parallel out.d0
            parallel out.d1
              serial out.d0 of 6
                serial out.d1 of 10
                  compute out"""),
    "a guarded tail": ("point", """
        store out
          serial out.d0
            serial out.d1
              serial out.d1 of 28
                vector out.d1 of 4, guard_with_if
                  compute out"""),
    "a tile that is too short for a vector": ("point", """
        store out
          serial out.d0
            serial out.d1
              serial out.d1 of 16
                vector out.d1 of 16
                  compute out"""),
    "lanes that do nothing": ("point", """
        store out
          serial out.d0
            serial out.d1
              vector out.d1 of 16, predicate
                compute out"""),
    "rows and columns as one": ("point", """
        store out
          parallel out.d0.d1
            serial out.d0.d1 of 128
              vector out.d0.d1 of 16
                compute out"""),
    "two nests": ("rows", """
        store rows
          parallel rows.d0
            serial rows.d1
              vector rows.d1 of 8
                compute rows
        store out
          parallel out.d0
            serial out.d1
              vector out.d1 of 16
                compute out"""),
    "another order in memory": ("rows", """
        store rows in order 1, 0 aligned to 16, 1
          serial rows.d1
            serial rows.d0
              vector rows.d0 of 8
                compute rows
        store out
          parallel out.d0
            serial out.d1
              vector out.d1 of 8
                compute out"""),
    "a row at a time": ("rows", """
        store out
          parallel out.d0
            store rows
              serial rows.d0
                serial rows.d1
                  vector rows.d1 of 16
                    compute rows
              serial out.d1
                vector out.d1 of 16
                  compute out"""),
    "tiles that compute what they need": ("rows", """
        store out
          parallel out.d0
            serial out.d1
              store rows
                serial rows.d0
                  serial rows.d1
                    vector rows.d1 of 4, round_up
                      compute rows
                serial out.d0 of 8
                  serial out.d1 of 10
                    compute out"""),
    "a window that slides along tasks": ("cols", """
        store out
          store cols
            parallel out.d0
              serial cols.d0
                serial cols.d1
                  vector cols.d1 of 16
                    compute cols
              serial out.d1
                vector out.d1 of 16
                  compute out"""),
    "a window in strips": ("cols", """
        store out
          parallel out.d0
            store cols
              serial out.d0 of 12
                serial cols.d0
                  serial cols.d1
                    compute cols
                serial out.d0 of 2
                  serial out.d1
                    compute out"""),
    "a window along rows, kept for all of them": ("rows", """
        store out
          store rows
            serial out.d0
              serial out.d1
                serial rows.d0
                  serial rows.d1
                    compute rows
                serial out.d1 of 2
                  compute out"""),
    "clamped at the border": ("padded", """
        store out
          parallel out.d0
            store rows
              serial out.d0 of 8
                serial rows.d0
                  serial rows.d1
                    vector rows.d1 of 8
                      compute rows
                serial out.d1
                  vector out.d1 of 8
                    compute out"""),
    "mirrored at the border": ("mirrored", """
        store out
          parallel out.d1
            store rows
              serial rows.d0
                serial rows.d1
                  compute rows
              serial out.d0
                serial out.d0 of 12
                  serial out.d1 of 4
                    compute out"""),
    "loops inside loops inside loops": ("deep", """
        store out
          parallel out.d0
            store b
              serial b.d0
                store a
                  serial a.d0
                    serial a.d1
                      vector a.d1 of 8
                        compute a
                  serial b.d1
                    compute b
              serial out.d1
                serial out.d0 of 5
                  compute out"""),
    "two windows, one behind the other": ("deep", """
        store out
          store a
            store b
              parallel out.d0
                serial a.d0
                  serial a.d1
                    compute a
                serial b.d0
                  serial b.d1
                    vector b.d1 of 8
                      compute b
                serial out.d1
                  compute out"""),
    "read by two": ("chain", """
        store out
          parallel out.d0
            store a in order 1, 0
              store b
                serial a.d0
                  serial a.d1
                    compute a
                serial b.d0
                  serial b.d1
                    compute b
                serial out.d0 of 4
                  serial out.d1
                    compute out"""),
    "half the size, twice the size": ("down and up", """
        store out
          parallel out.d0
            serial out.d1
              store half
                serial half.d0
                  serial half.d1
                    vector half.d1 of 4
                      compute half
                serial out.d0 of 8
                  serial out.d1 of 16
                    vector out.d1 of 8
                      compute out"""),
    "half the size, a window of two rows": ("down and up", """
        store out
          store half
            serial out.d0
              serial half.d0
                serial half.d1
                  compute half
              serial out.d0 of 2
                serial out.d1
                  compute out"""),
    "sums in vectors": ("sums", """
        store sums
          parallel sums.d0
            vector sums.d0 of 8
              serial sums.d1
                unroll sums.d1 of 4
                  compute sums 0, 1
        store out
          serial out.d0
            serial out.d1
              compute out"""),
    "sums along lanes": ("sums", """
        store sums
          parallel sums.d0
            serial sums.d1
              vector sums.d1 of 8
                compute sums 0, 1
        store out
          serial out.d0
            serial out.d1
              compute out"""),
    "sums from a nest of their own": ("sums", """
        store sums
          parallel sums.d0
            compute sums
          serial sums.d0
            serial sums.d1
              compute sums 1
        store out
          serial out.d0
            serial out.d1
              compute out"""),
    "an unrolled window": ("window", """
        store out
          parallel out.d0
            store conv
              serial conv.d0
                serial conv.d1
                  unroll conv.d2
                    unroll conv.d3
                      vector conv.d1 of 8
                        compute conv 0, 1
              serial out.d0 of 2
                serial out.d1
                  compute out"""),
    "a block of sums": ("product", """
        store out
          parallel out.d0
            serial out.d1
              serial out.d2
                unroll out.d0 of 4
                  unroll out.d1 of 16
                    vector out.d1 of 8
                      compute out 0, 1"""),
    "pieces side by side": ("pieces", """
        store out
          parallel out.d0
            serial out.d1
              store both
                serial both.d0
                  serial both.d1
                    vector both.d1 of 4
                      compute both 0, 1
                serial out.d1 of 19
                  serial out.d0 of 3
                    compute out"""),
    "an update of some columns": ("updated", """
        store out
          parallel out.d0
            store both
              serial both.d0
                serial both.d1
                  compute both
              serial both.d0
                serial both.d1
                  compute both 1
              serial out.d1
                vector out.d1 of 8
                  compute out"""),
    "a table": ("gather", """
        store curve
          serial curve.d0
            vector curve.d0 of 8
              compute curve
        store out
          parallel out.d0
            serial out.d1
              vector out.d1 of 8
                unroll out.d0 of 2
                  compute out"""),
    "a table that the first iteration of each task computes": ("gather", """
        store out
          store curve
            parallel out.d0
              serial curve.d0
                compute curve
              serial out.d1
                compute out"""),
    "channels of pixels": ("channels", """
        store out
          parallel out.d0
            store gray
              serial gray.d0
                serial gray.d1
                  vector gray.d1 of 8
                    compute gray
              serial out.d1
                vector out.d1 of 8
                  unroll out.d2
                    compute out"""),
    "channels and pixels as one": ("channels", """
        store gray
          serial gray.d0
            serial gray.d1
              compute gray
        store out
          parallel out.d0
            serial out.d1.d2
              vector out.d1.d2 of 12
                compute out"""),
    "a recurrence": ("scan", """
        store run
          parallel run.d0
            serial run.d1
              compute run
          parallel run.d0
            serial run.d1
              compute run 1
        store out
          serial out.d0
            serial out.d1
              compute out"""),
}  # fmt: skip
