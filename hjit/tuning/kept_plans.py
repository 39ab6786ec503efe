"""Managing the plans on disk: listing, showing, exporting and importing them.

A bundle is a JSON file of plans with their keys. A plan is the fastest schedule on the machine where it was measured,
so a bundle is accepted only by the same version of hjit on the same type of processor. It contains data only: trees are
checked when a plan is used, as for the cache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hjit.cache as cache
from hjit.errors import CacheError, ScheduleError
from hjit.process import machine
from hjit.process.files import replacing
from hjit.process.progress import milliseconds
from hjit.sched.language.tree import Root, from_json, renamed
from hjit.trace.passes.rewrites import parts_name
from hjit.tuning.limits import SIZE_RATIO
from hjit.tuning.plans import PlanName
from hjit.version import __version__

FORMAT = "hjit-plans-1"
MAX_BYTES = 64 << 20  # of a bundle
SHOWN_CHARACTERS = 12  # characters of a name that are shown
PREFIX = "plan_"


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan on disk.

    Attributes:
        entry: its name in the cache.
        stages: of its Graph, with the variables and lines that they come from.
        data: as it is kept, see `hjit.tuning.plans.to_text`.
    """

    entry: str
    name: PlanName
    machine: str
    stages: tuple[str, ...]
    data: dict[str, Any]

    @property
    def short(self) -> str:
        """What tells it from others, in few characters."""
        return self.entry.removeprefix(PREFIX)[:SHOWN_CHARACTERS]

    @property
    def is_current(self) -> bool:
        """Do calls find it, by the versions of hjit and its packages that are installed now?"""
        return self.entry == self.name.entry

    @property
    def function(self) -> str:
        """The function that its last stage comes from."""
        return self.stages[-1].rpartition(" in ")[2] if self.stages and " in " in self.stages[-1] else "-"

    def about(self) -> dict[str, Any]:
        """What a line of the table says, in numbers."""
        return {
            "plan": self.entry.removeprefix(PREFIX),
            "function": self.function,
            **asdict(self.name),
            "machine": self.machine,
            "is_current": self.is_current,
            "measured": self.data["measured"],
        }

    def line(self) -> str:
        """A line of a table."""
        return "  ".join(
            (
                f"{self.short:<{SHOWN_CHARACTERS}}",
                f"{self.function[:24]:<24}",
                f"{self.name.tune:<9}",
                f"{len(self.stages):>6}",
                f"{_about(SIZE_RATIO**self.name.magnitude):>7}",
                f"{self.name.threads:>7}",
                self._times() + ("" if self.is_current else "  (of other versions)"),
            )
        ).rstrip()

    def _times(self) -> str:
        if self.data["measured"] is None:
            return "not timed"
        best, default = self.data["measured"]
        if self.data["tree"] is None:
            return f"default {milliseconds(default)}"
        return f"{milliseconds(best)}, default {milliseconds(default)}"

    def __str__(self) -> str:
        """All of it."""
        names = {f"s{k}": x.partition("   #")[0] for k, x in enumerate(self.stages)}
        names = {parts_name(k): parts_name(n) for k, n in names.items()} | names
        lines = [
            f"plan      {self.entry}",
            f"found by  {self.name.tune}",
            f"for       {self.name.target}, {self.name.threads} threads{', fast_math' * self.name.fast_math}, "
            f"about {_about(SIZE_RATIO**self.name.magnitude)} points",
            f"on        {self.machine}",
            f"measured  {self._times()}",
            "stages",
            *(f"  {x}" for x in self.stages),
        ]
        if self.data["inlined"]:
            lines.append(f"inlined   {', '.join(names.get(n, n) for n in self.data['inlined'])}")
        for n, (dim, count) in self.data["factored"].items():
            lines.append(f"rfactor   {names.get(n, n)}: dimension {dim} in {count} parts")
        tree = _tree(self.data["tree"], names)
        lines += ["schedule", *(["  the default one"] if tree is None else (f"  {x}" for x in str(tree).splitlines()))]
        timed = self.data.get("timed", [])
        if timed:
            lines.append("compared, the fastest first")
            lines += [f"  {_row(x)}" for x in sorted(timed, key=lambda x: x["seconds"])]
        return "\n".join(lines)


def _row(x: Any) -> str:
    predicted = "" if x["cost"] is None else f", predicted {milliseconds(x['cost'])}"
    return f"{milliseconds(x['seconds'])}{predicted}{', the default schedule' if x['tree'] is None else ''}"


def _about(points: float) -> str:
    """A number of points in few characters."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if points >= size:
            return f"{points / size:.3g} {unit}"
    return f"{points:.3g}"


HEAD = (
    f"{'plan':<{SHOWN_CHARACTERS}}  {'function':<24}  {'found by':<9}  {'stages':>6}  {'points':>7}  "
    f"{'threads':>7}  measured"
)


def kept_plans(cache_dir: str | os.PathLike[str] = "") -> Iterator[KeptPlan]:
    """The plans of the cache that can be read, the latest written first."""
    for entry, header, payload in cache.entries("plan", cache_dir):
        try:
            found = _plan(entry, header, payload.decode())
        except (ValueError, CacheError):
            continue
        yield found


def some_plans(names: Sequence[str], cache_dir: str | os.PathLike[str] = "") -> list[KeptPlan]:
    """The kept plans whose names begin with one of `names`; all plans if there are no names.

    Raises:
        CacheError: there is none, or several, of a name.
    """
    every = list(kept_plans(cache_dir))
    if not names:
        return every
    found = []
    for name in names:
        same = [x for x in every if x.entry.removeprefix(PREFIX).startswith(name.removeprefix(PREFIX))]
        if len(same) != 1:
            why = "several plans begin so" if same else "there is no such plan"
            raise CacheError(f"{name}: {why}; hjit cache list names them")
        found += same
    return found


def _plan(entry: str, about: Any, text: str) -> KeptPlan:
    """A plan, checked as far as it is shown.

    Raises:
        ValueError: it is none.
    """
    name = PlanName.from_about(about)
    stages, kind = about.get("stages", []), about.get("machine", "")
    try:
        data = json.loads(text)
        if not isinstance(stages, list) or not all(isinstance(x, str) for x in stages) or not isinstance(kind, str):
            raise ValueError("no stages, or no processor")
        _tree(data["tree"], {})
        for x in (data, *data.get("timed", [])):
            if not isinstance(x["inlined"], list) or not isinstance(x["cost"], int | float | None):
                raise ValueError("no schedule")
        if data["measured"] is not None:
            best, default = data["measured"]
            float(best), float(default)
        for x in data.get("timed", []):
            float(x["seconds"])
        for k, count in data["factored"].values():
            int(k), int(count)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ScheduleError) as error:
        raise ValueError(f"not a plan: {error}") from None
    return KeptPlan(entry, name, kind, tuple(stages), data)


def _tree(data: Any, names: dict[str, str]) -> Root | None:
    if data is None:
        return None
    found = renamed(from_json(json.dumps(data)), names) if names else from_json(json.dumps(data))
    if not isinstance(found, Root):
        raise ValueError("a plan without a root")
    return found


# -- bundles


def export_plans(path: Path, names: Sequence[str] = (), cache_dir: str | os.PathLike[str] = "") -> int:
    """Write a bundle of plans; all of this version and this processor where there are no names. How many?

    Raises:
        CacheError: there are none.
        OSError: the file cannot be written.
    """
    found = [x for x in some_plans(names, cache_dir) if x.machine == machine.kind() and x.is_current]
    if not found:
        raise CacheError("there is no plan of this version of hjit and this processor")
    plans = [{**x.name.about(), "stages": x.stages, "plan": json.dumps(x.data)} for x in found]
    for x in plans:
        x["sha256"] = _hash(x)
    text = json.dumps({"format": FORMAT, "hjit": __version__, "machine": machine.kind(), "plans": plans}, indent=1)
    with replacing(path) as new:
        new.write_text(text + "\n", encoding="utf-8")
    return len(plans)


def _hash(x: Any) -> str:
    return cache.digest(*(json.dumps(x[n], sort_keys=True) for n in ("key", "machine", "stages", "plan")))


def import_plans(path: Path, cache_dir: str | os.PathLike[str] = "") -> tuple[int, int]:
    """Put the plans of a bundle into the cache: how many, and how many were better known here already.

    A plan that is here is replaced by one that is the faster against the default schedule of its own measurement.

    Raises:
        CacheError: it is no bundle, is damaged, or of another version or processor.
        OSError: the file cannot be read.
    """
    if path.stat().st_size > MAX_BYTES:
        raise CacheError(f"{path} is larger than a bundle of plans may be")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        is_bundle = data["format"] == FORMAT
        version, kind, plans = data["hjit"], data["machine"], list(data["plans"])
    except (ValueError, KeyError, TypeError, RecursionError):
        is_bundle = False
    if not is_bundle:
        raise CacheError(f"{path} is no bundle of plans, or of another format than {FORMAT}")
    if version != __version__:
        raise CacheError(f"{path} is of hjit {version}, this is hjit {__version__}: tune again, and export that")
    if kind != machine.kind():
        raise CacheError(f"{path} was measured on {kind!r}, this is {machine.kind()!r}: other schedules are fast here")
    found = [_checked(path, x) for x in plans]
    here = {x.entry: x for x in kept_plans(cache_dir)}
    new = [x for x in found if x.entry not in here or _gain(x) > _gain(here[x.entry])]
    for x in new:
        about = {**x.name.about(), "versions": cache.versions(), "stages": list(x.stages)}
        cache.store(x.entry, json.dumps(x.data).encode(), about, cache_dir, "rw", "plan")
    return len(new), len(found) - len(new)


def _checked(path: Path, x: Any) -> KeptPlan:
    try:
        if x["sha256"] != _hash(x):
            raise ValueError("its hash is another one")
        name = PlanName.from_about(x)
        return _plan(name.entry, x, x["plan"])
    except (ValueError, KeyError, TypeError) as error:
        raise CacheError(f"{path}: a plan in it is damaged: {error}") from None


def _gain(x: KeptPlan) -> float:
    """How many times as fast as the default schedule, as measured; 0 where it was not."""
    if x.data["measured"] is None:
        return 0.0
    best, default = x.data["measured"]
    return float(default) / max(float(best), 1e-12)
