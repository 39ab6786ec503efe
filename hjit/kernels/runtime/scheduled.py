"""The source of a kernel: a canonical Graph and its schedule."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hjit.errors import CompileError, ScheduleError
from hjit.kernels.runtime.naming import kernel_name
from hjit.options import Options
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.key import Key

if TYPE_CHECKING:
    from hjit.sched.language.tree import Root

log = logging.getLogger("hjit")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A canonical Graph and the schedule that was decided on for it: what a kernel is made of.

    Attributes:
        key: the Graph's.
        tree: a legal schedule; None: the default one, which needs no tree where the kernel is known.
        defaults: the trees of the default schedule, of which the first that can be lowered is taken.
        longest_block: instructions of one block of code, above which the schedule is refused.
        timed: does the kernel note when each of its nests ends? See `Bound.nest_seconds`.
        quick: is it compiled quickly, as it runs seldom? See `hjit.kernels.runtime.backend.compile_module`.
    """

    graph: Graph
    key: Key
    tree: Root | None
    defaults: Callable[[], Iterator[Root]]
    longest_block: float = math.inf
    timed: bool = False
    quick: bool = False

    def name(self, options: Options, small: bool) -> str:
        """The kernel's symbol, and its name in the disk cache. `small`: are all arrays?"""
        return kernel_name(self.graph, self.key, options, self.tree, small, self.timed, self.quick)

    def lowered(self, lower: Callable[[Root], T]) -> T:
        """The tree by `lower`; of the default schedule the first tree that can be lowered.

        Raises:
            ScheduleError: of `lower`.
            CompileError: no tree of the default schedule can be.
        """
        if self.tree is not None:
            return lower(self.tree)
        for tree in self.defaults():
            try:
                return lower(tree)
            except ScheduleError as error:
                log.debug("the default schedule is not legal: %s", error)
        raise CompileError(f"no schedule for\n{self.graph}")
