"""Which numbers of the arguments a trace depends on."""

from __future__ import annotations

from typing import Any

from hjit.trace.tracing.scalars.host import HostScalar, ScalarTape


class Searched(list[Any]):
    """A list that counts how many of its items are looked at in search of one."""

    looked = 0

    def __contains__(self, item: object) -> bool:
        Searched.looked += len(self)
        return super().__contains__(item)


def test_each_number_is_pinned_once_and_no_list_is_searched() -> None:
    tape = ScalarTape(guards=Searched())
    scalars = [HostScalar.leaf(tape, k, k) for k in range(100)]
    for _ in range(3):
        assert [s.make_static() for s in scalars] == [*range(100)]
    assert [k for k, _ in tape.guards] == [s.k for s in scalars]
    assert tape.replay([*range(100)]) is not None and tape.replay([7] * 100) is None
    assert Searched.looked == 0
