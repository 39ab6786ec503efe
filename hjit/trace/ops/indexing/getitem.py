"""Indexing of tracers: basic slices (views), masks, and integer arrays (gather and scatter)."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Index, Load, Op, cast, renumber
from hjit.trace.ir.expressions import substitute as substitute_expr
from hjit.trace.ir.graph import Definition, compose, identity
from hjit.trace.ir.poly import ZERO, Dim, Indirect, Poly, extremum, poly
from hjit.trace.ops.arguments import broadcast
from hjit.trace.ops.indexing.block_scatters import subdomains
from hjit.trace.ops.indexing.moving_bounds import clamped, moves_alone, moving_bound, window_behind_condition
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.masked import MaskedRead, same_values
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_new_array,
    as_tracer,
    from_known,
    from_stage,
    is_tracer,
    stored,
)
from hjit.trace.tracing.arrays.writing import check_nesting, next_version, trim, version_name, write
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.events import CheckedIndices
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import as_array, as_item, is_host, static_value
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable
from hjit.trace.tracing.scalars.moving import MovingLength, is_natural, moves
from hjit.trace.tracing.scalars.size import Size, size_poly


@provides
def getitem(a: Tracer, key: Any) -> Any:
    """``a[key]``: a view for basic keys, a gather for integer arrays, a `MaskedRead` for a traced mask."""
    a = as_new_array(a)
    slices = _plain_slices(a, key)
    if slices is None:
        return _item_or_view(a, key)
    view = _sliced(a, key, slices)
    if view._shape or _has_ellipsis(key):
        return view
    view.is_scalar = True
    return _frozen(view)


def _sliced(a: Tracer, key: Any, slices: Sequence[Any]) -> Tracer:
    """The view by a plain key."""
    views, kind = current().memos.views, (id(a._shape), id(a.index), *slices)
    known = views.get(kind)
    if known is None:
        view = basic_view(a, parse_key(a, key).basic)
        views[kind] = a._shape, a.index, view._shape, view.index
        return view
    view = Tracer(a.buffer, known[2], known[3], read_only=a.read_only)
    view.is_ordered = a.is_ordered
    return view


_PLAIN = frozenset((int, type(None)))


def _plain_slices(a: Tracer, key: Any) -> list[Any] | None:
    """A key of integers, and slices by them, which gives the same view of all arrays that are alike.

    None: it is another one, or the array's contents may be known, too.
    """
    if a._known is not None or a.buffer.contents is not None:
        return None
    found: list[Any] = []
    for k in key if type(key) is tuple else (key,):
        if type(k) is slice:
            if not (type(k.start) in _PLAIN and type(k.stop) in _PLAIN and type(k.step) in _PLAIN):
                return None
            found.append((k.start, k.stop, k.step))
        elif type(k) in _PLAIN or k is ...:
            found.append(k)
        else:
            return None
    return found


def _item_or_view(a: Tracer, key: Any) -> Any:
    """As `getitem`."""
    key = _as_mask(a, key)
    if _has_reads(key) and (read := forward.item_by_reads(a, key)) is not None:
        return read
    parsed = parse_key(a, key)
    view = basic_view(a, parsed.basic)
    if parsed.mask is not None:
        return MaskedRead(view.copy(), parsed.mask.copy())
    if not parsed.arrays:
        if not view.shape and not _has_ellipsis(key) and all(map(_is_int, parsed.basic)):
            view.is_scalar = True
        return _frozen(view) if view.is_scalar else view
    if view.known is not None and all(x.known is not None for x in parsed.arrays.values()):
        return from_known(
            view.known[tuple(parsed.arrays[k].known if k in parsed.arrays else slice(None) for k in range(view.ndim))],
            of=(view, *parsed.arrays.values()),
        )
    plan = AdvancedIndex.of(view, parsed)
    found = from_stage(
        view.at(plan.index(identity(len(plan.shape)))),
        plan.shape,
        view.dtype,
        is_scalar=not plan.shape and not _has_ellipsis(key),
    )
    if not found.is_scalar and all(x.is_scalar for x in parsed.arrays.values()):
        found.buffer.viewed = view.buffer.root, view.buffer.root.source()
    return found


def _as_mask(a: Tracer, key: Any) -> Any:
    """The mask whose places, as `numpy.nonzero` gives them, a key is; else the key itself."""
    parts = key if type(key) is tuple else (key,)
    if not parts or type(parts[0]) is not MaskedRead:
        return key
    mask, stages = parts[0].mask, current().stages
    if tuple(a.shape[: len(parts)]) != tuple(mask.shape):
        return key
    for k, x in enumerate(parts):
        stage = stages.get(x.full.buffer.version) if type(x) is MaskedRead and x.mask is mask else None
        if stage is None or stage.updates or stage.initial != Index(poly(Dim(k))):
            return key
    return mask


def _has_reads(key: Any) -> bool:
    """Are indices read under a mask?"""
    return any(type(x) is MaskedRead for x in (key if type(key) is tuple else (key,)))


def _has_ellipsis(key: Any) -> bool:
    """With an ellipsis NumPy gives a 0-d array where it would give a scalar."""
    return any(k is ... for k in (key if isinstance(key, tuple) else (key,)))


def _frozen(scalar: Tracer) -> Tracer:
    """A NumPy scalar does not change when its array does: freeze the version that it reads."""
    if scalar.known is not None:
        return from_known(scalar.known.copy(), is_scalar=True, of=scalar)
    return from_stage(scalar.load(), (), scalar.dtype, is_scalar=True)


@provides
def setitem(a: Tracer, key: Any, value: Any) -> None:
    """``a[key] = value``."""
    slices = None if type(value) is MaskedRead else _plain_slices(a, key)
    if slices is not None:
        view = _sliced(a, key, slices)
        check_nesting(value, view.ndim, is_element=not view._shape and not _has_ellipsis(key))
        write(view, value)
        return
    key = _as_mask(a, key)
    if _has_reads(key) and forward.assign_by_reads(a, key, value):
        return
    parsed = parse_key(a, key)
    view = basic_view(a, parsed.basic)
    if parsed.mask is not None:
        _write_masked(view, parsed.mask, value)
    elif not parsed.arrays:
        if type(value) is MaskedRead:
            reason = "the length of a boolean-mask read depends on the image's values"
            raise current().error("assignment", reason, "assign it under the mask it was read with")
        check_nesting(value, view.ndim, is_element=not view.shape and not _has_ellipsis(key))
        write(view, value)
    else:
        plan = AdvancedIndex.of(view, parsed)
        if all(x.is_scalar for x in parsed.arrays.values()):  # which are integers to NumPy
            check_nesting(value, len(plan.shape), is_element=not plan.shape and not _has_ellipsis(key))
        _scatter(view, plan, value)


# -- parsing


@dataclass(slots=True)
class _Key:
    """An index split into its basic part and what is applied to the view that this gives.

    Attributes:
        basic: int, slice or None, one per axis of the array or new axis.
        arrays: axis of the view -> integer array.
        mask: a traced mask over the leading axes of the view.
        apart: were the integer arrays separated by a slice? NumPy then puts their axes first.
    """

    basic: list[Any]
    arrays: dict[int, Tracer]
    mask: Tracer | None = None
    apart: bool = False


def parse_key(a: Tracer, key: Any) -> _Key:
    """An index as one entry per axis.

    Raises:
        IndexError: NumPy refuses it.
        TraceError: a mask beside other arrays, or after a slice.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    items = [_item(k) for k in items]
    used = sum(0 if k is None or k is Ellipsis else k.ndim if _is_mask(k) else 1 for k in items)
    if sum(k is Ellipsis for k in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > a.ndim:
        raise IndexError(f"too many indices for array: array is {a.ndim}-dimensional, but {used} were indexed")
    fill = [slice(None)] * (a.ndim - used)
    at = next((i for i, k in enumerate(items) if k is Ellipsis), None)
    if at is None:
        items += fill
    else:
        items[at : at + 1] = fill
    items = _with_known_masks(a, items)
    masks = [k for k in items if _is_mask(k)]
    advanced = [k for k in items if is_tracer(k)]
    if masks:
        return _masked_key(a, items, masks, advanced)
    if not advanced:
        return _Key(items, {})
    # integers beside integer arrays are broadcast with them
    arrays: dict[int, Tracer] = {}
    basic: list[Any] = []
    places: list[int] = []
    axis = dim = 0
    for position, k in enumerate(items):
        if is_tracer(k) or _is_int(k):
            arrays[axis] = k if is_tracer(k) else _as_scalar(_in_range(k, a.shape[dim], dim))
            places.append(position)
            basic.append(slice(None))
        else:
            basic.append(k)
        axis += 1
        dim += k is not None
    return _Key(basic, arrays, apart=places[-1] - places[0] + 1 != len(places))


def _as_scalar(k: Any) -> Tracer:
    """An integer as an integer array."""
    found = as_tracer(k, np.intp)
    found.is_scalar = True
    return found


def _is_int(k: Any) -> bool:
    return type(k) is InductionVariable or isinstance(k, int)


def _is_mask(k: Any) -> bool:
    return is_tracer(k) and k.dtype == bool


def _item(k: Any) -> Any:
    """One entry of the key: None, Ellipsis, slice, int, or an integer or bool tracer."""
    if k is None or k is Ellipsis or isinstance(k, slice):
        return k
    if is_host(k):
        return operator.index(k)
    if type(k) in (int, Size, InductionVariable):
        return k
    if isinstance(k, (bool, np.bool_)):
        return from_known(np.asarray(k))
    if isinstance(k, (int, np.integer)):
        return int(k)
    t = as_tracer(k)
    if t.size == 0 and not is_tracer(k) and not isinstance(k, np.ndarray):
        t = from_known(np.zeros(t.shape, np.intp))
    if t.dtype.kind not in "iub":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if t.known is not None and t.ndim == 0 and t.dtype != bool:
        return int(t.known)
    return t


def _with_known_masks(a: Tracer, items: list[Any]) -> list[Any]:
    out: list[Any] = []
    axis = 0
    for k in items:
        if _is_mask(k) and k.known is not None and k.ndim:
            _check_mask(a, k, axis)
            out += [from_known(ix) for ix in np.nonzero(k.known)]
        else:
            out.append(k)
        axis += 0 if k is None else k.ndim if _is_mask(k) else 1
    return out


def _check_mask(a: Tracer, mask: Tracer, axis: int) -> None:
    """Raise NumPy's exception where a mask has not the shape of the axes of `a` from `axis` on."""
    for k, n in enumerate(mask.shape, axis):
        if a.shape[k] != n:
            raise IndexError(
                f"boolean index did not match indexed array along axis {k}; size of axis is {int(a.shape[k])} "
                f"but size of corresponding boolean axis is {int(n)}"
            )


def _masked_key(a: Tracer, items: list[Any], masks: list[Tracer], advanced: list[Tracer]) -> _Key:
    if len(masks) > 1 or len(advanced) > 1:
        raise current().error("index", "a boolean mask together with another array index")
    mask = masks[0]
    at = next(i for i, k in enumerate(items) if k is mask)
    before = sum(k is not None for k in items[:at])
    if any(k is not None and not _is_int(k) for k in items[:at]) and any(
        not _is_full(k) for k in items[:at] + items[at + 1 :]
    ):
        raise current().error("index", "a boolean mask after a slice")
    if any(k is None for k in items[:at]) or any(not _is_int(k) for k in items[:at]):
        raise current().error("index", "a boolean mask after a slice", "move the masked axes to the front")
    _check_mask(a, mask, before)
    return _Key(items[:at] + [slice(None)] * mask.ndim + items[at + 1 :], {}, mask=mask)


def _in_range(k: Any, n: int, axis: int) -> Any:
    if not -n <= k < n:
        raise IndexError(f"index {int(k)} is out of bounds for axis {axis} with size {int(n)}")
    return k + n if k < 0 else k


def _index(k: int | InductionVariable, n: int, axis: int) -> Poly:
    """The index of one element."""
    rec = current()
    if type(k) is not InductionVariable or 0 <= min(k.ends()) <= max(k.ends()) < n:
        return rec.poly(_in_range(k, n, axis))
    least, most = sorted(k.known_ends())
    if not -n <= least <= most < n or least < 0 <= most:
        return rec.poly(_in_range(k, n, axis))
    return clamped(rec.poly(k) + (rec.poly(n) if most < 0 else 0), rec.poly(n) - 1)


# -- basic indexing


def _is_full(k: Any) -> bool:
    """Is it ``:``? A loop variable in another slice is not to be compared."""
    return type(k) is slice and k.start is None and k.stop is None and k.step is None


def basic_view(a: Tracer, items: Sequence[Any]) -> Tracer:
    """The view by integers, slices and new axes, one of them per axis of `a` or new axis."""
    if all(map(_is_full, items)):
        whole = Tracer(a.buffer, a.shape, a.index, a._known, read_only=a.read_only)
        whole.is_ordered = a.is_ordered
        return whole
    rec = current()
    shape: list[int] = []
    inner: list[Poly] = []
    axis = 0
    for k in items:
        if k is None:
            shape.append(1)
            continue
        n: Any = a.shape[axis]
        if type(n) is MovingLength and not (_is_full(k) or _is_reversing(k)):
            raise n.loop.refusal("index into a slice that moves with the loop")
        window = window_behind_condition(k, n) if isinstance(k, slice) and rec.loops else None
        if window is not None:
            inner.append(identity(len(shape) + 1)[-1] + window[0])
            shape.append(window[1])
        elif isinstance(k, slice):
            start, step, count = (0, 1, n) if _is_full(k) else slice_range(k, n)
            if isinstance(count, InductionVariable):
                raise count.refusal("slice whose length depends on the iteration")
            along = identity(len(shape) + 1)[-1]
            inner.append(along * step + (0 if count == 0 else _first(start, count)))
            shape.append(count)
        else:
            inner.append(_index(k, n, axis))
        axis += 1
    known = None
    if a._known is not None and not _is_varying(items):  # the Ellipsis keeps a single element a view
        known = a._known[
            (*(slice(*map(_int, (k.start, k.stop, k.step))) if isinstance(k, slice) else k for k in items), ...)
        ]
    index = tuple(inner) if a.is_whole else compose(a.index, inner)
    view = Tracer(a.buffer, rec.shape(shape), index, known, read_only=a.read_only)
    view.is_ordered = a.is_ordered
    return view


def _first(start: Any, count: Any) -> Poly:
    """The first index of a slice; a large number is a constant where the length tells it, too, as in ``a[20:-20]``: by
    both it is known that the indices are inside the axis."""
    return poly(start) if type(start) is int and type(count) is Size else current().poly(start)


def _is_varying(items: Sequence[Any]) -> bool:
    """Does an index depend on the induction variable of a loop?"""
    return any(type(x) is InductionVariable for k in items for x in ((k.start, k.stop) if type(k) is slice else (k,)))


def _is_reversing(k: Any) -> bool:
    """Is it ``::-1``?"""
    return type(k) is slice and k.start is None and k.stop is None and type(k.step) is int and k.step == -1


def _int(x: Any) -> int | None:
    return None if x is None else operator.index(x)


_LONGEST_STEP = 1 << 31  # of slices: in bytes it must be a stride


def slice_range(k: slice, n: Any) -> tuple[Any, int, Any]:
    """First index, step and length of a slice of an axis of length `n`, as sizes that keep their polynomials."""
    step = 1 if k.step is None else operator.index(static_value(k.step))
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if type(n) is MovingLength:
        return (0, step, n) if step == 1 else (n.poly - 1, step, n)
    if abs(step) > _LONGEST_STEP >= int(n):  # another step that leads out of the axis
        step = _LONGEST_STEP if step > 0 else -_LONGEST_STEP
    start, stop = (_bound(x, n, step, first) for x, first in ((k.start, True), (k.stop, False)))
    rec = current()
    if rec.loops and abs(step) == 1 and any(type(x) in (InductionVariable, Poly) for x in (start, stop)):
        length = (rec.poly(stop) - rec.poly(start)) * step
        if moves(length) and rec.records_program:
            ranges = [(x.var, *x.ends) for x in rec.loops]
            length = length if is_natural(length, ranges, rec.sizes) else extremum("max", length, ZERO)
            return start, step, MovingLength(rec.loops[-1], length)
        if moves(length):
            why = rec.loops[-1].refusal("a slice whose length moves with the loop")
            raise CannotReroll(why.site, str(why), moving=True)
    span = stop - start if step > 0 else start - stop
    if span <= 0:
        return start, step, 0
    count = span if abs(step) == 1 else (span + abs(step) - 1) // abs(step)
    return start, step, count


def _bound(x: Any, n: int, step: int, first: bool) -> Any:
    low, high = (0, n) if step > 0 else (-1, n - 1)
    if x is None:
        return (low if first else high) if step > 0 else (high if first else low)
    x = static_value(x)
    if moves_alone(x, n, step):
        return moving_bound(x, n)
    if is_tracer(x):
        x = operator.index(x)
    x = x if type(x) in (int, Size, InductionVariable) else operator.index(x)
    if x < 0:
        x = x + n
        return low if x < low else x
    return high if x > high else x


# -- masks


def _write_masked(view: Tracer, mask: Tracer, value: Any) -> None:
    condition = mask.load()  # over the leading dimensions
    if type(value) is MaskedRead:
        if not same_values(value.mask, mask):
            raise current().error("assignment", "values read under another mask")
        write(view, value.full, condition)
        return
    if not is_host(value):
        value = stored(value, view.dtype)
        rest = view.shape[mask.ndim :]
        if value.ndim > len(rest) and not (value.ndim == 1 and value.shape[0] == 1):
            raise current().error(
                "assignment under a mask",
                "one value for each selected element: their number depends on the image's values",
                "use np.where",
            )
        value = trim(value, rest) if value.ndim else value
    write(view, value, condition)


# -- integer arrays


@dataclass(slots=True)
class AdvancedIndex:
    """How integer arrays address a view.

    Attributes:
        shape: of the result.
        axes: per axis of the view, the result dimension that runs along it, or the integer array.
        lead: first result dimension of the broadcast integer arrays.
        broadcast: their shape.
    """

    view: Tracer
    shape: Shape
    axes: list[int | Tracer]
    lead: int
    broadcast: Shape

    @classmethod
    def of(cls, view: Tracer, key: _Key) -> AdvancedIndex:
        try:
            many = broadcast(*(t.shape for t in key.arrays.values()))
        except ValueError:
            shapes = " ".join(str(tuple(map(int, t.shape))).replace(" ", "") for t in key.arrays.values())
            raise IndexError(
                f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes} "
            ) from None
        lead = 0 if key.apart else min(key.arrays)
        shape: list[int] = []
        axes: list[int | Tracer] = []
        if lead == 0:
            shape += many
        for k, n in enumerate(view.shape):
            if k in key.arrays:
                if k == lead and lead:
                    shape += many
                axes.append(key.arrays[k])
            else:
                axes.append(len(shape))
                shape.append(n)
        return cls(view, tuple(shape), axes, lead, many)

    def index(self, dims: Sequence[Poly], known: Mapping[int, Poly] = {}) -> list[Poly]:
        """One index per axis of the view, result dimension k being ``dims[k]``; `known`: elements of some arrays."""
        inner = list(dims[self.lead : self.lead + len(self.broadcast)])
        found: list[Poly] = []
        for k, (n, axis) in enumerate(zip(self.view.shape, self.axes, strict=True)):
            if k in known:
                found.append(known[k])
            else:
                found.append(gather_index(axis, inner, self.broadcast, n) if is_tracer(axis) else dims[axis])  # type: ignore[index,arg-type]
        return found


def gather_index(t: Tracer, dims: Sequence[Poly], shape: Shape, n: int) -> Poly:
    """The value of integer array `t`, broadcast to `shape`, as an index into an axis of length `n`.

    Where the known contents, or how it was computed, prove that it is in range, no check is made at run time.

    Raises:
        IndexError: known contents are out of range.
    """
    expr = cast(t.load(shape), np.int64)
    expr = substitute_expr(expr, renumber(dims))
    if t.known is not None:
        low, high = (int(t.known.min()), int(t.known.max())) if t.known.size else (0, 0)
        if t.known.size and not (-n <= low and high < n):
            raise IndexError(f"index {low if low < -n else high} is out of bounds for axis 0 with size {int(n)}")
        safe = low >= 0
    else:
        found = current().range_of(expr)
        safe = found is not None and found[0] >= 0 and found[1] < n
        if not safe and not (found is not None and found[0] >= -n and found[1] < n):
            _note(t, n)
    return poly(Indirect(expr, None if safe else size_poly(n) if isinstance(n, Size) else current().poly(n)))


def _note(t: Tracer, n: int) -> None:
    """Have all of these indices looked at: kernels look at those alone whose elements are needed."""
    rec = current()
    key = _index_key(t, n)
    if key not in rec.indices:
        axes = [k for k, m in enumerate(t.shape) if m != 1]
        expr = cast(t.at([poly(Dim(axes.index(k))) if k in axes else poly(0) for k in range(t.ndim)]), np.int64)
        rec.indices[key] = CheckedIndices(
            rec.stage(expr, [t.shape[k] for k in axes], np.int64, name="index").name, rec.poly(n)
        )


def _index_key(t: Tracer, n: int) -> Any:
    """What is the same index: in a loop none is."""
    rec = current()
    return t.buffer.source(), t.index, int(n), len(rec.stages) if rec.loops else 0


def _scatter(view: Tracer, plan: AdvancedIndex, value: Any) -> None:
    """``view[arrays] = value``, in NumPy's order: where an element is hit twice, the last value stays."""
    if type(value) is MaskedRead:
        raise current().error("assignment", "values read under a mask")
    value = trim(stored(value, view.dtype, as_array if plan.shape else as_item), plan.shape)
    scatter(view, plan, cast(value.load(plan.shape), view.dtype), "sequential")


def scatter(
    view: Tracer, plan: AdvancedIndex, value: Expr, order: str, combine: Any = None, kept: Expr | None = None
) -> None:
    """Write `value`, over the dimensions of the plan's result, to the elements that the plan addresses.

    Args:
        combine: makes the new element from the old one and `value`, as ``np.add.at`` does.
        kept: where elements are written at all, over the same dimensions.
    """
    if not view.writeable:
        raise ValueError("assignment destination is read-only")
    rec, buffer = current(), view.buffer
    old = buffer.source()
    name = rec.unique(version_name(old))
    many = range(plan.lead, plan.lead + len(plan.broadcast))
    pure = [k for k in range(len(plan.shape)) if k not in many]
    arrays = {axis: t for axis, t in enumerate(plan.axes) if isinstance(t, Tracer)}
    extents = {axis: view.shape[axis] for axis in arrays}
    updates = []
    for part in subdomains(arrays, extents, plan.broadcast, len(pure)):
        dims = [poly(0)] * len(plan.shape)
        for i, k in enumerate(pure):
            dims[k] = poly(Dim(i))
        dims[plan.lead : plan.lead + len(many)] = part.index
        target = compose(view.index, plan.index(dims, part.known))
        new = substitute_expr(value, renumber(dims))
        own = Load(name, target, buffer.dtype)
        if combine is not None:
            new = combine(own, new)
        if kept is not None:
            new = Op("select", (substitute_expr(kept, renumber(dims)), new, own), buffer.dtype)
        outer = (*(plan.shape[k] for k in pure), *part.blocks)
        updates.append(Definition(rec.polys(outer), rec.polys(part.inner), target, new, order))
    for axis, t in arrays.items():
        noted = rec.indices.get(_index_key(t, extents[axis]))
        if noted is not None:
            noted.scatters.add(name)
    next_version(buffer, old, tuple(updates), name)
