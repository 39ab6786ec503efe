"""Required regions, propagated over intervals of numbers."""

from hjit.sched.analysis.footprint import NUMERIC
from hjit.sched.analysis.propagation import DefinitionGroup, Footprint, Uses, hulls, propagate
from hjit.sched.analysis.sites import sites_of
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.language.tree import Compute, Loop, Node, Store
from hjit.trace.ir.intervals import bounds_of
from hjit.trace.ir.poly import Dim, poly
from tests.sched.examples import SIZES, H, W, X, Y, add, at, f, graph, source, stage

HERE = (bounds_of(poly(Dim(0)), NUMERIC),)
AROUND = (bounds_of(poly(Dim(0)) + 1, NUMERIC, first=-1),)


def group(name: str, **reads: tuple[object, ...]) -> DefinitionGroup[object]:
    footprints = {s: Footprint((parts,)) for s, parts in reads.items()}
    return DefinitionGroup(name, [(0.0, 99.0)], ((0, 0, 1, None),), footprints)


def test_regions_grow_from_the_last_consumer_back() -> None:
    found = {}

    def begin(stage: str, uses: Uses[DefinitionGroup[object]]) -> object:
        found[stage] = hulls(uses.of(stage), NUMERIC)
        return found[stage]

    parts = [group("out", b=AROUND), group("b", a=AROUND, b=AROUND), group("a")]
    propagate(parts, {"a": 0, "b": 1, "out": 2}, {"out": [(5.0, 5.0)]}, begin)
    assert found == {"b": ((4.0, 6.0),), "a": ((3.0, 7.0),)}


def test_a_consumer_that_needs_the_whole_axis_is_not_forgotten_beside_others() -> None:
    """Whichever of the two is first."""
    for readers in ((HERE, ()), ((), HERE)):
        uses: Uses[DefinitionGroup[object]] = Uses(["a"])
        for parts in readers:
            uses.add(group("reader", a=parts), [(2.0, 3.0)])
        assert hulls(uses.of("a"), NUMERIC) == (None,)
    assert hulls((), NUMERIC) is None


def test_speeds_of_long_chains_are_found_once_a_stage() -> None:
    """Two stages read each one and are read by the next: there are 2**30 ways from the first to the last."""
    stages = [stage("c0", (H, W), f("sqrt", at("img", Y, X)))]
    for k in range(30):
        stages += [stage(f"{x}{k}", (H, W), f("sqrt", at(f"c{k}", Y, X))) for x in "ab"]
        stages.append(stage(f"c{k + 1}", (H, W), add(at(f"a{k}", Y, X), at(f"b{k}", Y, X))))
    *inner, out = stages
    body: tuple[Node, ...] = tuple(
        Loop(s.name, 0, "serial", None, (Loop(s.name, 1, "serial", None, (Compute(s.name, (0,)),)),)) for s in inner
    )
    nest: Node = Loop(
        out.name, 0, "serial", None, (*body, Loop(out.name, 1, "serial", None, (Compute(out.name, (0,)),)))
    )
    for s in reversed(stages):
        nest = Store(s.name, (nest,))
    sites = sites_of(SizedGraph(graph([source("img", H, W)], *stages), SIZES), nest, []).sites
    assert set(sites) == {s.name for s in stages}
