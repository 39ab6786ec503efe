"""What a trace notes of the sizes that it compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.call.build import Request
from hjit.export.sizes import polymorphic_trace
from hjit.options import Options
from hjit.trace.capture.trace import PyTree, flatten
from hjit.trace.ir.poly import Sym, poly
from hjit.trace.tracing.scalars.size import Size, size_guards_noted

N = poly(Sym("n"))


def test_comparisons_are_noted() -> None:
    n: Any = Size(100, N)
    with size_guards_noted() as size_guards:
        assert n > 3
        assert n > 7
        assert n != Size(90, poly(Sym("m")))
        assert (n,) == (Size(100, N + 0),)  # the same size
        assert bool(n)
        assert n // 10 == 10  # a small number, which takes the place of a size
    noted = {(f.op, str(f.a), str(f.b), f.holds) for f in size_guards}
    assert noted == {
        ("gt", "n", "3", True),
        ("gt", "n", "7", True),
        ("ne", "n", "m", True),
        ("ne", "n", "0", True),
        ("is", "((n)//(10))", "10", True),
    }


def test_outside_nothing_is_noted() -> None:
    n: Any = Size(100, N)
    with size_guards_noted() as outer:
        with size_guards_noted() as inner:
            assert n > 3
        assert n > 4
    assert (len(inner), len(outer)) == (1, 1)
    assert n > 5 and bool(n) and hash(n) == hash(100)
    assert (len(inner), len(outer)) == (1, 1)


def fixed(f: Any, *args: Any) -> frozenset[str]:
    leaves: list[Any] = []
    structure = PyTree(tuple, (flatten(args, leaves), flatten({}, leaves)))
    options = Options(on_unsupported="raise", budget=None, blas=False)
    return polymorphic_trace(Request(f, structure, leaves, options)).fixed


IMAGE = np.ones((40, 60), np.float32)


def test_sizes_for_which_something_else_would_be_computed() -> None:
    assert not fixed(lambda a: a[1:] - a[:-1], IMAGE)
    assert not fixed(lambda a: a.reshape(a.shape[0] // 2, 2, -1).sum(1), IMAGE)
    assert fixed(lambda a: a * (2.0 if a.shape[0] * 0.5 > 15 else 3.0), IMAGE) == {"a.0"}
    assert fixed(lambda a: a[:, : round(a.shape[1] / 2)] + 1, IMAGE) == {"a.1"}
    assert not fixed(lambda a, n: a * (a.shape[0] - n), IMAGE, 3)  # on the tape
    assert not fixed(lambda a: a * a.shape[1] ** 2 / a.shape[0], IMAGE)
    assert not fixed(lambda a: a * (2.0 if a.shape[0] / 8 > 1.5 else 3.0), IMAGE)
    assert fixed(lambda a: a * a.shape[1] ** 0.1 / a.shape[0], IMAGE) == {"a.1"}  # C has no power as Python's
    assert fixed(lambda a: a * np.array(a.shape)[0], IMAGE) == {"a.0"}
    assert not fixed(lambda a, b: a + b, IMAGE, IMAGE.copy())
    assert fixed(lambda a: a[:, :1] + np.array([k + a.shape[0] * 0.5 for k in range(1500)]), IMAGE) == {"a.0"}
    assert fixed(lambda a: a * {41: 2.0, 1000: 4.0}.get(a.shape[0], 3.0), IMAGE) == {"a.0"}
