"""Features of schedules against counting them, and of pipelines against a look at their definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from hjit.sched.tree import Compute, Loop, Node, Root, Store
from hjit.trace.graph import Const, Definition, Expr, Graph, Input, Load, Op, Stage, identity
from hjit.trace.poly import Dim, Sym, Value, bound, poly

F4, U1 = np.dtype(np.float32), np.dtype(np.uint8)
Y, X, C, R = (poly(Dim(k)) for k in range(4))
H, W = poly(Sym("h")), poly(Sym("w"))
SIZES = {"h": 24, "w": 40}


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
        stage("rows", (H, W), add(*(at("img", bound("clamp", Y + k, H), X) for k in (-1, 0, 1)))),
        stage("out", (H, W), add(*(at("rows", bound("clamp", Y + k, H), bound("clamp", X + j, W)) for k in (-1, 0, 1) for j in (-1, 0, 1)))),
    ),
    "mirrored": graph(
        [IMAGE],
        stage("rows", (H, W), add(*(at("img", bound("reflect", Y + k, H), X) for k in (-2, 0, 2)))),
        stage("out", (H, W), add(*(at("rows", bound("symmetric", Y + k, H), X) for k in (-1, 0, 1)))),
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
        [IMAGE],
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
        stage("out", (H, W), f("multiply", at("curve", Value(at("codes", Y, X, dtype=U1), None)), at("table", Value(at("codes", Y, 0, dtype=U1), None)))),
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
GRAPHS["window"] = Graph((IMAGE, source("taps", 3, 3)), (), GRAPHS["window"].stages, ("out",))


# -- trees as they are printed


def tree(text: str) -> Root:
    """The tree that is printed so."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.strip("\n").splitlines() if line.strip()]

    def children(k: int, depth: int) -> tuple[tuple[Node, ...], int]:
        found: list[Node] = []
        while k < len(lines) and lines[k][0] == depth:
            inner, end = children(k + 1, lines[k + 1][0]) if k + 1 < len(lines) and lines[k + 1][0] > depth else ((), k + 1)
            found.append(_node(lines[k][1], inner))
            k = end
        return tuple(found), k

    return Root(children(0, lines[0][0])[0])


def _node(line: str, children: tuple[Node, ...]) -> Node:
    word, rest = line.split(" ", 1)
    if word == "compute":
        name, *numbers = rest.replace(",", "").split()
        return Compute(name, tuple(map(int, numbers)) or (0,))
    if word == "store":
        name, *order = rest.replace(",", "").replace(" in order", "").split()
        return Store(name, children, tuple(map(int, order)))
    name, dims, size, tail = re.fullmatch(r"(\w+)\.(d\d(?:\.d\d)*)(?: of (\d+))?(?:, (\w+))?", rest).groups()  # type: ignore[union-attr]
    ks = tuple(int(x[1:]) for x in dims.split("."))
    return Loop(name, ks if len(ks) > 1 else ks[0], word, None if size is None else int(size), children, tail or "auto")  # type: ignore[arg-type]
