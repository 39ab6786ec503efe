"""The results of a function, assembled from the outputs of its kernels."""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hjit.call.guards import look_up, overlap
from hjit.trace.capture.trace import PyTree, Result, owner
from hjit.trace.ir.analysis.tolerances import EXACT, Tolerance, combined
from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import Dim, sizes_value
from hjit.trace.tracing.complex_memory import complex_dtype, complex_of
from hjit.trace.tracing.writeable import is_writeable

Array = np.ndarray[Any, Any]
Shape = tuple[tuple[int, ...], np.dtype[Any]]  # with the dtype


# -- what running a call may return in place of a result


class Outcome(enum.Enum):
    """MISS: no variant serves this call. PLAIN: the plain function is to run. PARTS: the split function is to run
    (`hjit.call.breaks`)."""

    MISS = enum.auto()
    PLAIN = enum.auto()
    PARTS = enum.auto()


MISS: Final = Outcome.MISS
PLAIN: Final = Outcome.PLAIN
PARTS: Final = Outcome.PARTS


# -- results


def complex_argument(name: str) -> str:
    """The name under which the state of a call has a complex argument itself; `name` has its real and imaginary parts
    as a real array."""
    return f"{name} as complex"


def is_tree(tree: Any) -> bool:
    """Is each object in a result new, and in it only once?"""
    seen: set[int] = set()

    def visit(x: Any) -> bool:
        if id(x) in seen:
            return False
        seen.add(id(x))
        return type(x) is not PyTree or (x.caller_path is None and all(map(visit, x.items)))

    return visit(tree)


@dataclass(frozen=True, slots=True)
class Results:
    """What a function returns, and which arguments it writes.

    Attributes:
        tree: the structure of the returned value, with a `Result` for each leaf.
        leaves: those, in order.
        writes: the inputs that it changes, each with the stage that has the new elements.
        sizes: the values of the run-time sizes by name.
        is_tree: is each object in the result new, and in it only once?
    """

    tree: Any
    leaves: list[Result]
    writes: tuple[tuple[str, str], ...]
    sizes: Mapping[str, int]
    is_tree: bool = True

    def build(self, leaf: Callable[[Result], Any]) -> Any:
        """The structure of the results over ``leaf(result)``."""
        return self.tree.build(leaf) if isinstance(self.tree, PyTree) else leaf(self.tree)

    def put_together(self, leaf: Callable[[Result], Any], leaves: Sequence[Any] = (), arguments: Any = None) -> Any:
        """The value that the function returns, with aliasing preserved: an object that occurs twice is one object, and
        lists, tuples and dicts of the caller are the caller's own.

        Args:
            leaf: returns the value of a leaf.
            leaves: the leaves of the arguments.
            arguments: the arguments of the call, (args, kwargs); None: the caller's containers are copied.
        """
        if self.is_tree:
            return self.build(leaf)
        made: dict[int, Any] = {}

        def put(x: Any) -> Any:
            if id(x) not in made:
                made[id(x)] = leaf(x) if type(x) is Result else container(x)
            return made[id(x)]

        def container(x: PyTree) -> Any:
            if x.caller_path is None or arguments is None:
                return x.of([put(y) for y in x.items])
            if type(x.caller_path) is tuple:
                return functools.reduce(operator.getitem, x.caller_path, arguments)
            return look_up(x.caller_path, leaves)

        return put(self.tree)

    def finish(
        self, values: Sequence[Any], state: Mapping[str, Array], leaves: Sequence[Any] = (), arguments: Any = None
    ) -> Any:
        """Write the arguments that the function changes; return its result.

        Args:
            values: the values of the tape.
            state: arrays by name, inputs and stages.
            leaves, arguments: see `put_together`.
        """
        for argument, stage in self.writes:
            np.copyto(state[argument], state[stage])

        wholes: set[str] = set()
        joined: dict[str, Array] = {}

        def leaf(r: Result) -> Any:
            match r.kind:
                case "array":
                    return r.returned(state[r.name])
                case "view" if r.is_computed and r.name not in wholes and self.is_whole(state[r.name], r):
                    wholes.add(r.name)
                    return owner(complex_of(state[r.name])) if r.is_complex else state[r.name]
                case "constant":
                    copy = r.value.copy("K")
                    copy.flags.writeable = not r.read_only
                    return r.returned(copy)
                case "argument":
                    return r.of_argument(state[complex_argument(r.name) if r.is_complex else r.name])
                case "view":
                    seen = self.view(state[r.name], r)
                    return complex_of(seen) if r.is_complex else seen
                case "compacted":
                    if r.name not in joined:
                        joined[r.name] = joined_rows(*(state[n] for n in r.stages))
                    return of_joined(joined[r.name], r)
                case "list":
                    columns = [joined_rows(state[c.rows], state[c.lengths]) for c in r.value.columns]
                    return r.value.made(columns)
                case "host":
                    return values[r.value]
                case _:
                    return r.value

        return self.put_together(leaf, leaves, arguments)

    def destinations(
        self, targets: Sequence[Any], shapes: Mapping[str, Shape], state: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The caller's arrays that kernels can write results to directly, by stage.

        Args:
            targets: the caller's arrays, one for each leaf.
            shapes: of the stages that kernels and products compute.
            state: the arrays that are read, which a destination must not overlap.
        """
        found: dict[str, Array] = {}
        for r, t in zip(self.leaves, targets, strict=False):
            if (
                r.kind != "array"
                or r.is_scalar
                or r.is_complex
                or r.read_only
                or type(t) is not np.ndarray
                or t.ndim != len(r.order or t.shape)
            ):
                continue
            destination = r.as_stage(t)
            if not destination.flags.carray or shapes.get(r.name) != (destination.shape, destination.dtype):
                continue
            others = [x for x in targets if x is not t and isinstance(x, np.ndarray)]
            if not any(overlap(t, x) for x in (*state.values(), *others)):
                found[r.name] = destination
        return found

    def view(self, base: Any, r: Result, strided: Callable[..., Any] | None = None) -> Any:
        """The view that an index map describes.

        Args:
            strided: makes views of device arrays, see `hjit.kernels.cuda.runtime.device.Device`.
        """
        base = base if r.dtype is None else base.view(r.dtype)
        sizes = self.sizes
        shape = tuple(sizes_value(p, sizes) for p in r.shape)
        if base.size == 0 or 0 in shape:
            if strided is not None:
                return strided(base, shape, [base.itemsize] * len(shape))
            return _without_elements(base, shape, r.read_only)

        def at(k: int) -> list[int]:
            """The index where dimension `k` is 1 and the others are 0."""

            def number(a: Any) -> int:
                return int(a.k == k) if isinstance(a, Dim) else sizes[a.name]

            return [p.evaluate(number) for p in r.index]

        start = at(-1)
        steps = [
            sum((i - o) * stride for i, o, stride in zip(at(k), start, base.strides, strict=True))
            for k in range(len(shape))
        ]
        if strided is None:
            first = sum(o * n for o, n in zip(start, base.strides, strict=True))
            seen = _of_memory(base, shape, first, steps)
            if seen is not None:
                seen.flags.writeable = is_writeable(base) and not r.read_only
                return seen
        corner: Any = (*(slice(o, o + 1) for o in start), ...)
        if strided is not None:
            return strided(base[corner], shape, steps)
        return np.lib.stride_tricks.as_strided(
            base[corner], shape, steps, writeable=is_writeable(base) and not r.read_only
        )

    def is_whole(self, base: Array, r: Result) -> bool:
        """Does a view show the whole array, in its own order?"""
        shape = tuple(sizes_value(p, self.sizes) for p in r.shape)
        return base.shape == shape and r.index == identity(len(shape)) and r.dtype is None and not r.read_only

    # -- verification
    def arranged(
        self,
        stages: Mapping[str, Tolerance],
        make: Callable[[Tolerance, str, Callable[[Array], Any]], Any],
        lengths: Callable[[str], Array] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """The tolerances of the results, in their structure; and those of changed arguments, by name.

        Args:
            stages: the tolerances of the stages.
            make: makes a tolerance of a result from that of its stage, the name of the stage, and a function that
                arranges an array shaped as the stage in the shape of the result.
            lengths: the lengths of the rows of a compacted array, by the name of their stage.
        """
        written = {name: stages.get(stage, EXACT) for name, stage in self.writes}
        stage_of = dict(self.writes)

        def leaf(r: Result) -> Any:
            if r.kind == "list":
                return combined(stages.get(n, EXACT) for n in r.stages)

            def arrange(a: Array) -> Any:
                if r.kind == "compacted":
                    assert lengths is not None
                    return of_joined(joined_rows(a, lengths(r.value.lengths)), r)
                return self.view(a, r) if r.kind == "view" else r.arranged(a) if r.kind == "array" else a

            return make(written.get(r.name) or stages.get(r.name, EXACT), stage_of.get(r.name, r.name), arrange)

        return self.build(leaf), {name: make(t, stage_of[name], lambda a: a) for name, t in written.items()}

    @property
    def signature(self) -> tuple[Any, ...]:
        """How results are made of the outputs of the kernels, as a hashable value."""
        leaves = tuple(
            (r.kind, r.name, r.shape, r.index, r.is_scalar, r.weak, r.order, r.is_complex, *r.stages)
            for r in self.leaves
        )
        return leaves, tuple(self.writes)


_LONG_ROW = 256  # elements: rows that are shorter are joined by a mask (measured: as fast at 316)


def joined_rows(rows: Array, lengths: Array) -> Array:
    """The beginnings of rows, one after another.

    Args:
        rows: of shape (..., elements of a row, ...).
        lengths: how many elements of each row are wanted, over the axes before those.
    """
    n, rest = rows.shape[lengths.ndim], rows.shape[lengths.ndim + 1 :]
    rows, counts = rows.reshape(-1, n, *rest), lengths.reshape(-1)
    if n < _LONG_ROW:
        return rows[np.arange(n) < counts[:, None]]
    return np.concatenate([row[:k] for row, k in zip(rows, counts.tolist(), strict=True)])


def of_joined(array: Array, r: Result) -> Array:
    """The result that is made of joined rows."""
    if r.value.column is not None:
        return array[..., r.value.column]
    return np.asfortranarray(array) if r.value.is_fortran else array


def _without_elements(base: Array, shape: Sequence[int], read_only: bool) -> Array:
    """A view without elements."""
    if not base.ndim:
        return np.empty(shape, base.dtype)
    found: Array = base[(slice(0, 0),) * base.ndim].reshape(shape)
    if read_only:
        found.flags.writeable = False
    return found


def _of_memory(base: Array, shape: Sequence[int], first: int, steps: Sequence[int]) -> Array | None:
    """A view whose `base` is the owner of the memory, as with NumPy's views; None if NumPy cannot make one.

    Args:
        first: offset of the first element from that of `base`, in bytes.
        steps: the strides of the view.
    """
    memory = base
    while type(memory.base) is np.ndarray:
        memory = memory.base
    whole = memory if memory.flags.c_contiguous else memory.T
    has_buffer = type(whole) is np.ndarray and whole.flags.c_contiguous
    if not has_buffer or is_writeable(base) > is_writeable(memory):
        return None
    if memory is not base:
        first += base.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return np.ndarray(shape, base.dtype, whole, first, steps)


# -- allocation of results that are not laid out as their stages: complex ones, and those in another order of axes.
# The result is allocated as NumPy would, and the kernel writes to a view of it. So the result owns its memory.


@dataclass(frozen=True, slots=True)
class Allocation:
    """How such a result is allocated.

    Attributes:
        like: a prototype with its shape, dtype and order of axes, without memory of its own.
        axes: the permutation of the result's axes that gives the stage's; None if they are the same.
        stage: shape and dtype of the stage.
    """

    like: Array
    axes: tuple[int, ...] | None
    stage: Shape

    def allocate(self) -> Array:
        """A new result, viewed as the stage; `base` of the view is the result."""
        made = np.empty_like(self.like)
        if self.axes is not None:
            made = made.transpose(self.axes)
        shape, dtype = self.stage
        if made.dtype == dtype:
            return made
        # NumPy does not view a 0-d array as a smaller dtype
        parted: Array = (made if made.ndim else made.reshape(1)).view(dtype)
        return parted.reshape(shape)


def allocation_of(result: Result, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Allocation | None:
    """How a result is allocated whose stage, of this shape and dtype, a kernel computes; None if it is laid out as its
    stage, or is a scalar."""
    is_whole = result.kind == "array" or (result.is_computed and result.index == identity(len(shape)))
    if not is_whole or result.is_scalar or result.is_plain or 0 in shape:
        return None
    order = result.order[:-1] if result.is_complex else result.order
    whole, kind = (shape[:-1], complex_dtype(dtype)) if result.is_complex else (shape, dtype)
    like = np.broadcast_to(np.zeros((), kind), whole)
    strides = np.cumprod((kind.itemsize, *whole[:0:-1]))[::-1] if whole else ()
    like = np.lib.stride_tricks.as_strided(like, whole, tuple(map(int, strides)))
    if not order:
        return Allocation(like, None, (shape, dtype))
    return Allocation(like.transpose(order), tuple(map(int, np.argsort(order))), (shape, dtype))


def allocations(
    leaves: list[Result], shapes: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
) -> dict[str, Allocation]:
    """`allocation_of` all results, by stage; `shapes`: shapes and dtypes of the stages that kernels compute."""
    found = {}
    for r in leaves:
        made = allocation_of(r, *shapes[r.name]) if r.name in shapes else None
        if made is not None:
            found[r.name] = made
    return found
