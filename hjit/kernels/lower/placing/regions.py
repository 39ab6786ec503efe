"""Bounds inference at one place in the tree: what of each stage that begins there is needed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from hjit.kernels.lower.placing.context import Namer
from hjit.sched.analysis.bounds import Dims, Reads, Region, infer_bounds
from hjit.sched.language.tree import Compute
from hjit.trace.ir.poly import Poly, Var


@dataclass(frozen=True, slots=True)
class Site:
    """A place where stages are computed.

    Attributes:
        computed: what is computed there, the consumers among it.
        begun: the stages whose own loops are directly at the place.
        opened: of the stages whose loops are open there, what they still have to compute.
        around: the regions at the place around this one; see `hjit.sched.analysis.bounds`.
        iteration: the innermost loop: its variable, step, and begin.
        sliding: for each stage that slides along that loop what of it all iterations together need, as the place around
            this one has it: its producers have memory, or have computed their part, for that only, wherever it is
            stored itself.
        vectors: the axes of each stage along which vectors run.
        round_up: stage -> axis -> what its part of the axis is made a multiple of.
    """

    reads: Reads
    computed: list[Compute]
    begun: Container[str]
    opened: Mapping[str, Dims]
    around: Mapping[str, Region]
    iteration: tuple[Var, int, Poly] | None
    sliding: Mapping[str, Region]
    vectors: Mapping[str, Container[int]]
    round_up: Mapping[str, Mapping[int, int]]

    @property
    def loop(self) -> tuple[Var, int, Poly]:
        """The loop that stages slide along."""
        assert self.iteration is not None
        return self.iteration


def same(stage: str, region: Region) -> Region:
    """Producers serve all of a region."""
    return region


def infer_regions(
    site: Site,
    name: Namer,
    served: Callable[[str, Region], Region] = same,
    opened: Mapping[str, Dims] | None = None,
) -> dict[str, Region]:
    """The regions of all stages that begin at a site.

    Args:
        name: gives a region's bounds names.
        served: the part of a region that its producers must serve at each iteration.
        opened: in place of the site's.
    """
    opened = site.opened if opened is None else opened
    return infer_bounds(site.reads, site.computed, opened, name, served, site.round_up, site.around, site.begun)
