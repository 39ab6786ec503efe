"""Loops that occur often inside a nest become functions; whatever becomes one, the results are NumPy's."""

import random
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.lower.loopir import For, If, Outlined, SlidingProduce, Stmt, VectorLoop
from hjit.kernels.lower.passes import outlining
from hjit.kernels.lower.traverse import with_bodies
from hjit.trace.ir.poly import ZERO, Var, poly
from tests.numpy_check import check
from tests.schedules import failure

IMAGE = np.random.default_rng(0).random((45, 70)).astype(np.float32)
SHIFTS = [(dy, dx) for dy in (1, 2, 4) for dx in (1, 3, 5)]


def weights(img: Any) -> Any:
    """A sum over a search window, each of whose positions takes three stages."""
    p = np.pad(img, 8, mode="edge")
    h, w = img.shape
    total = np.zeros_like(img)
    for dy, dx in SHIFTS:
        apart = (p[dy : dy + h + 4, dx : dx + w + 4] - p[8 : 12 + h, 8 : 12 + w]) ** 2
        rows = apart[:-4] + apart[1:-3] + apart[2:-2] + apart[3:-1] + apart[4:]
        total += np.sqrt(rows[:, :-4] + rows[:, 1:-3] + rows[:, 2:-2] + rows[:, 3:-1] + rows[:, 4:])
    return total


def row_by_row() -> hjit.Schedule:
    s = hjit.pipeline(weights).schedule(IMAGE)
    head = s.stages[-1]
    s[head].split("y", "yo", "y", 8)
    for name in sorted(
        (n for n in (*s.stages, *s.inlined) if n.startswith(("apart", "rows"))), reverse=True
    ):  # rows before what they read
        s[name].compute_at(s[head], "y")
        if name.startswith("apart"):
            s[name].store_at(s[head], "yo")
    return s


@pytest.mark.parametrize("many", [6, 1000])
def test_stages_of_a_search_window_share_functions_where_there_are_many(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlining, "MANY", many)
    s = row_by_row()
    f = hjit.pipeline(weights, cache="off").use(s)
    outlined, text = str(f.loops(IMAGE)).count("outlined:"), f.inspect_llvm(IMAGE)
    functions = [line for line in text.splitlines() if line.startswith("define") and ".inner" in line]
    if many == 6:
        assert outlined > len(SHIFTS) and 1 <= len(functions) <= 4
    else:
        assert outlined == 0 and not functions
    check(weights, IMAGE, schedule=s)


def loop(text: str, *body: Stmt) -> For:
    return For(Var(text), ZERO, poly(9), 1, body)


def test_what_slides_stays_a_part_of_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlining, "MANY", 2)
    monkeypatch.setattr(outlining, "ALIKE", 1)

    def visit(body: tuple[Stmt, ...], inside: bool) -> None:
        for s in body:
            assert not (inside and isinstance(s, SlidingProduce))
            for part in outlining.inner(s):
                visit(part, inside or isinstance(s, Outlined))

    (program,) = hjit.pipeline(weights, cache="off").use(row_by_row()).loops(IMAGE)
    assert "slide" in str(program) and "outlined:" in str(program)
    for nest in program.nests:
        visit(nest.body, False)


def test_one_or_three_alike_are_not_worth_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlining, "MANY", 3)
    few = tuple(loop(f"d{k}") for k in range(3))
    assert outlining._outlined(few) == few
    many = tuple(loop(f"d{k}") for k in range(4))
    assert outlining._outlined(many) == tuple(Outlined((x,)) for x in many)
    other = (*many[:3], loop("d9", loop("d10")))
    assert outlining._outlined(other) == other


def anything(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Statements of which some become functions."""
    r = random.Random(len(str(body)))

    def some(part: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return (Outlined(part),) if part and not outlining._has_state(part) and r.random() < 0.5 else anything(part)

    found: list[Stmt] = []
    for s in body:
        if (
            isinstance(s, (For, VectorLoop))
            and not outlining._has_state((s,))
            and r.random() < (0.35 if isinstance(s, For) else 1)
        ):
            found.append(Outlined((s,)))
        else:
            found.append(
                with_bodies(s, anything if isinstance(s, For) else some)
                if isinstance(s, (For, If, SlidingProduce))
                else s
            )
    return tuple(found)


@pytest.mark.parametrize("start", range(5000, 5020, 5))
def test_any_loop_may_become_a_function(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlining, "_outlined", anything)
    wrong = {seed: why for seed in range(start, start + 5) if (why := failure(seed)) is not None}
    assert not wrong
