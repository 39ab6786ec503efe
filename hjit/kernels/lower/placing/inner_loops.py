"""Queries about the loops of a tree: which run inside a loop, how far its iterations advance, whether it contains
vector loops."""

from __future__ import annotations

from hjit.sched.language.tree import Compute, Loop, Node, computes


def inner_loops(node: Loop) -> list[Loop]:
    """The loops of the same stage and dimension inside a loop, outermost first."""
    found: list[Loop] = []
    for c in node.children:
        if _collect(c, node, found):
            break
        found.clear()
    return found


def _collect(n: Node, node: Loop, found: list[Loop]) -> bool:
    """Add the loops of the stage and dimension of `node` in `n` to `found`; is the stage computed in `n`?"""
    if isinstance(n, Compute):
        return n.stage == node.stage
    if isinstance(n, Loop) and n.stage == node.stage and n.dim == node.dim:
        found.append(n)
    return any(_collect(c, node, found) for c in n.children)


def step_of(node: Loop) -> int:
    """How far one iteration of a loop goes: the size of the next loop over the same dimension."""
    below = inner_loops(node)
    return (below[0].size or 1) if below else 1


def is_alone(node: Loop) -> bool:
    """Is nothing but the loop's own stage computed inside it?"""
    return all(c.stage == node.stage for c in computes(node))


def vectors_below(node: Loop) -> tuple[int, int] | None:
    """Lanes and vectors at once of the loop, where nothing but vectors runs inside it."""
    if node.kind == "vector":
        return node.size or 1, 1
    below = inner_loops(node)
    if not below or below[-1].kind != "vector" or any(x.kind != "unroll" for x in below[:-1]) or not is_alone(node):
        return None
    lanes = below[-1].size or 1
    together = node.size if node.kind == "unroll" and node.size else below[0].size or 1
    return lanes, max(together // lanes, 1)


def vector_loop(node: Loop) -> Loop:
    """The vector loop that a loop is, or that runs inside it."""
    return node if node.kind == "vector" else inner_loops(node)[-1]


def chain_of(node: Loop) -> list[Loop]:
    """A loop and the loops inside it, each the only child of the one before."""
    found = [node]
    while isinstance(found[-1].children[0], Loop):
        found.append(found[-1].children[0])
    return found
