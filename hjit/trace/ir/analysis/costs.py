"""What expressions cost to evaluate, in additions."""

from __future__ import annotations

from functools import lru_cache

from hjit.trace.ir.expressions import Expr, Load, Op, walk
from hjit.trace.ir.poly import Indirect

# Costs of operations in vectors, estimates; an operation that is not named costs 1.
COSTS = {
    **dict.fromkeys(
        "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh cbrt".split(), 12
    ),
    **dict.fromkeys("power arctan2 hypot arcsinh arccosh arctanh logaddexp logaddexp2".split(), 20),
    **dict.fromkeys("true_divide floor_divide remainder fmod sqrt".split(), 4),
    "ldexp": 12,
    "select": 1,
    "reordered": 0,
    "unordered": 0,
}


@lru_cache(maxsize=1 << 12)
def cost(e: Expr) -> int:
    """The arithmetic of one evaluation."""
    return sum(_node_cost(x) for x in walk(e))


@lru_cache(maxsize=1 << 12)  # a search asks it of each definition at each step
def instruction_count(e: Expr, lanes: int = 1) -> int:
    """An estimate of the instructions of one evaluation; free operations count as one, too.

    Args:
        lanes: of its vectors; a gather has an instruction for each, at least.
    """
    return sum(lanes if _is_gather(x) else _node_cost(x) or 1 for x in walk(e))


def _node_cost(e: Expr) -> int:
    if isinstance(e, Op):
        return COSTS.get(e.name, 1)
    return 1 if _is_gather(e) else 0


def _is_gather(e: Expr) -> bool:
    return isinstance(e, Load) and any(isinstance(a, Indirect) for p in e.index for a in p.atoms())
