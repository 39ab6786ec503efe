"""The pruning rules of Adams 2019, section 3.2; each can be switched off."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from hjit.model.feature_names import SCHEDULE
from hjit.sched.language.build import Path, at
from hjit.sched.language.definitions import is_associative, is_direct
from hjit.sched.language.kinds import LOOP_KINDS
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store, dims_of
from hjit.sched.search.thresholds import (
    INLINED_OPERATIONS,
    MAX_NEST_STAGES,
    MAX_RECOMPUTE,
    MAX_TILE,
    TASKS_PER_CORE,
    TILE_LEVELS,
    TILES_PER_OCTAVE,
    UNROLLED_OPERATIONS,
)
from hjit.trace.ir.graph import Graph

Features = np.ndarray[Any, Any]
_AT = {name: k for k, name in enumerate(SCHEDULE)}


@dataclass(frozen=True, slots=True)
class Rules:
    """The pruning rules and their parameters.

    Attributes:
        recompute: how often a value may be computed, in the mean over a stage; inf: as often as one likes.
        largest_tile: along one dimension, in elements of what is inside it.
        tiles: sizes that are tried between a tile and one twice as large, the first of them included.
        producer_tiles: a stage that is computed inside its consumers' nest may get one more level of tiles of it.
        plane_loops: a few planes may be computed one after the other, and not only together in each iteration. Alone, a
            nest often costs less that way, but what planes share is computed for each, and other stages keep out.
        one_dimension: loops between where a stage is stored and where it is computed run over one dimension.
        share_choices: of isomorphic stages (`hjit.sched.search.isomorphic_stages`) only the first one is searched.
        together: stages that one child of the root computes.
        tile_levels: loops of a size over one dimension of a stage, besides those that are unrolled or vectors.
        tasks: a parallel loop has at least this many iterations for each core, where the stage has so many. (Of more
            than four for each core the launcher makes fewer tasks, so there is no rule of the most.)
        orders: stages may be laid out with that axis innermost which the vectors of a reader run along.
        native_vectors: no vector has more lanes than a native one of the narrowest type at work.
        unrolled: operations that the copies of one unrolled body have, inlined stages included.
        optimistic: are stages of which it is not decided where they are computed assumed to be where that costs their
            readers the least (Adams 2019, section 3.2), and not at the root? Every nest is then costed again when what
            it reads is placed. A search finds now better schedules and now worse:
            see `hjit.sched.search.portfolio`.
        inlined: operations that one evaluation has at most, those of inlined stages included: on a small image all of
        it looks cheap. The copies of an unrolled body into which a stage is inlined have no more, either.
    """

    recompute: float = MAX_RECOMPUTE
    largest_tile: int = MAX_TILE
    tiles: int = TILES_PER_OCTAVE
    producer_tiles: bool = True
    plane_loops: bool = False
    share_choices: bool = False
    one_dimension: bool = True
    together: int = MAX_NEST_STAGES
    tile_levels: int = TILE_LEVELS
    tasks: float = TASKS_PER_CORE
    orders: bool = True
    native_vectors: bool = True
    unrolled: float = UNROLLED_OPERATIONS
    inlined: float = INLINED_OPERATIONS
    optimistic: bool = False

    def is_site(self, graph: Graph, root: Root, path: Path) -> bool:
        """May a stage be computed in a loop? Not in unrolled or vector loops, nor inside a sum."""
        x: Root | Node = root
        for k in path:
            assert not isinstance(x, Compute)
            x = x.children[k]
            if not isinstance(x, Loop):
                continue
            if LOOP_KINDS[x.kind].is_straight_line:
                return False
            ds = graph.stage(x.stage).definitions
            pure = min(len(d.dims) for d in ds)
            if dims_of(x.dim)[-1] >= pure and any(
                (is_associative(d) and is_direct(d)) or dims_of(x.dim)[-1] >= len(d.dims) for d in ds
            ):
                return False
        return True

    def stores(self, root: Root, site: Path) -> Iterator[Path]:
        """Where a stage that is computed in a loop may be stored: there, or further out, so that a window slides.

        Loops between are over one dimension (`one_dimension`), as a window slides along one.
        """
        loop = at(root, site)
        assert isinstance(loop, Loop)
        yield site
        for k in reversed(range(len(site))):
            x, above = at(root, site[: k + 1]), at(root, site[:k])
            if isinstance(x, Loop) and self.one_dimension and (x.stage, x.dim) != (loop.stage, loop.dim):
                return
            if isinstance(x, Loop) and isinstance(above, (Loop, Store)):
                yield site[:k]

    def tile_sizes(self, around: Sequence[Loop], inner: int, dim: int, extent: float) -> tuple[int, ...]:
        """Sizes of a tile: that of the loops inside it, which means no tile, and multiples of it below the enclosing
        size."""
        above = [x.size for x in around if x.dim == dim and x.size is not None]
        if len(above) >= self.tile_levels:
            return (inner,)
        limit = above[-1] if above else extent
        sizes = [inner * k for k in log_spaced(self.largest_tile, self.tiles)]
        return tuple(n for n in sizes if n == inner or (n < limit and (not above or above[-1] % n == 0)))

    def pruned(
        self, features: Features, points: Features, cores: int, most: float = inf
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The schedules that recompute too much, or have too few tasks.

        Args:
            features: [batch, stages, len(SCHEDULE)].
            points: how many points of each stage there are to compute, [stages].
            most: tasks that the default schedule has: where there cannot be enough, these are not too few.

        Returns:
            [batch].
        """
        computed = features[..., _AT["points_computed_total"]] + features[..., _AT["inlined_calls"]]
        # a mean over definitions: where most have one, that is not few
        tasks = np.rint(features[..., _AT["inner_parallelism"]])
        few = (tasks > 1) & (tasks < min(self.tasks * cores, most))
        return np.asarray((self.is_too_often(computed, points) | few).any(-1))

    def is_too_often(self, computed: Features, points: Features | float) -> Features:
        """The stages that are recomputed too much, by one child of the root or by all that they are inlined into."""
        return np.asarray(computed > self.recompute * points)


@functools.lru_cache(maxsize=64)
def log_spaced(most: int, each: int, least: int = 1) -> tuple[int, ...]:
    """Integers up to `most`, `each` of them from one power of two to the next, if there are that many."""
    spaced = (m << k for k in range(most.bit_length()) for m in range(each, 2 * each))
    return tuple(n for n in (*range(1, each), *spaced) if least <= n <= most)
