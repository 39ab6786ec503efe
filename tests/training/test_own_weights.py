"""``HJIT_WEIGHTS``: a process searches by weights of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.stored import kernels
from hjit.model import network
from hjit.tuning.limits import WEIGHTS
from hjit.tuning.plans import PlanName
from hjit.tuning.weights import weights, weights_digest, weights_file

IMAGE = np.random.default_rng(3).random((70, 96), np.float32)
NAME = PlanName("graph", 3, "target", 1, False, "greedy")
KNOWN = (weights, weights_digest, kernels._weights)


def forget() -> None:
    for f in KNOWN:
        f.cache_clear()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of weights, which is that of this process."""
    before = [NAME.entry, NAME.by("autotune").entry, kernels._weights()]
    file = tmp_path / "weights.npz"
    network.random(7).save(file)
    monkeypatch.setenv("HJIT_WEIGHTS", str(file))
    forget()
    yield file
    monkeypatch.delenv("HJIT_WEIGHTS")
    forget()
    assert before == [NAME.entry, NAME.by("autotune").entry, kernels._weights()]


def soften(img: Any) -> Any:
    rows = (img[:-2] + img[1:-1] + img[2:]) / 3
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 3


def test_they_are_loaded_and_plans_are_their_own(own: Path) -> None:
    found: Any = weights()
    assert weights_file() == own
    np.testing.assert_array_equal(found.arrays["schedule_mix"], network.random(7).arrays["schedule_mix"])
    named = NAME.entry, NAME.by("autotune").entry
    forget()
    own.write_bytes(WEIGHTS.read_bytes())
    assert NAME.entry != named[0], "it is what predicted, not where it lies"
    assert NAME.by("autotune").entry == named[1], "that was measured"


def test_a_search_uses_them(own: Path) -> None:
    f = hjit.pipeline(soften, tune="greedy", cache="off")
    np.testing.assert_array_equal(f(IMAGE), soften(IMAGE))
    assert f.stats.fallbacks == 0
    assert weights.cache_info().currsize == 1


@pytest.mark.parametrize("damage", ["no weights", None])
@pytest.mark.parametrize("cache", ["rw", "off"])
@pytest.mark.parametrize("on_unsupported", ["break", "raise"])
def test_a_file_that_is_none_is_an_error(own: Path, damage: str | None, cache: str, on_unsupported: str) -> None:
    own.unlink()
    if damage is not None:
        own.write_text(damage)
    f = hjit.pipeline(lambda img: soften(img) + 1, tune="greedy", cache=cache, on_unsupported=on_unsupported)
    with pytest.raises(hjit.OptionError, match="HJIT_WEIGHTS=.*weights.npz"):
        f(IMAGE)
    plain = hjit.pipeline(lambda img: soften(img) + 1, tune=False, cache=cache)
    np.testing.assert_array_equal(plain(IMAGE), soften(IMAGE) + 1)  # nothing is searched
