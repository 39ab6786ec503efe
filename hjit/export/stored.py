"""Descriptions as JSON, and the file that they and machine code are in.

hjit-bundle-2
the sha256 of all that follows
a line of JSON: what the file is for, and what is in it
machine code and arrays, one after the other
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hjit.errors import HjitError
from hjit.export.description import CannotExport, Description, Output, Parameter, Scratch, View
from hjit.export.matching import LEFT_OUT
from hjit.export.numbers import numbers_from_json
from hjit.kernels.runtime.sizes import encode
from hjit.process.files import replacing
from hjit.trace.capture.trace import PyTree
from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.scalars.size import SizeGuard

MAGIC = b"hjit-bundle-2\n"
_MAKERS = {"tuple": tuple, "list": list, "dict": dict}
_STATIC = (str, bool, int, float, type(None))  # arguments that JSON can hold


@dataclass(frozen=True, slots=True)
class Stored:
    """A kernel of a bundle: its description, with encoded sizes, and its code."""

    description: Description
    code: bytes


def write(path: Path, header: Mapping[str, Any], kernels: Sequence[tuple[Description, bytes]]) -> None:
    """Write a bundle."""
    payload, rows = bytearray(), []
    for d, code in kernels:
        row = description_to_json(d)
        row["code"] = [len(payload), len(code)]
        payload += code
        arrays = []
        for a in d.data:
            arrays.append([a.dtype.str, list(a.shape), len(payload)])
            payload += a.tobytes()
        row["data"] = arrays
        rows.append(row)
    text = json.dumps({**header, "kernels": rows}).encode() + b"\n" + payload
    with replacing(path) as new:
        new.write_bytes(MAGIC + hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], bytes]:
    """The header, the kernels' rows, and the payload of a bundle.

    Raises:
        HjitError: it is none, or it is damaged.
    """
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        kind = "a bundle of another version of hjit" if data.startswith(b"hjit-bundle-") else "no bundle of hjit"
        raise HjitError(f"{path}: this is {kind}")
    digest, _, text = data[len(MAGIC) :].partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise HjitError(f"{path}: the file is damaged: its digest is not the one that it was written with")
    head, _, payload = text.partition(b"\n")
    header = json.loads(head)
    return header, header.pop("kernels"), payload


def kernel_of(row: dict[str, Any], payload: bytes) -> Stored:
    """A kernel from its row."""
    start, length = row["code"]
    data = []
    for dtype, shape, at in row["data"]:
        count = int(np.prod(shape, dtype=np.int64))
        data.append(np.frombuffer(payload, np.dtype(dtype), count, at).reshape(shape).copy())
    return Stored(description_from_json(row, tuple(data)), payload[start : start + length])


def signature_to_json(signature: inspect.Signature) -> list[Any]:
    """A row for each parameter: name, kind, and its default, if any, in a list; an empty one where JSON has no such."""
    return [
        [p.name, p.kind.name, None if p.default is p.empty else [p.default] if _is_held(p.default) else []]
        for p in signature.parameters.values()
    ]


def signature_from_json(rows: Sequence[Any]) -> inspect.Signature:
    """The other way round; a default that is not there is `LEFT_OUT`."""
    found = []
    for name, kind, given in rows:
        default = inspect.Parameter.empty if given is None else _value(given[0]) if given else LEFT_OUT
        found.append(inspect.Parameter(name, getattr(inspect.Parameter, kind), default=default))
    return inspect.Signature(found)


def _is_held(x: Any) -> bool:
    return type(x) in _STATIC or (type(x) is tuple and all(map(_is_held, x)))


def _value(x: Any) -> Any:
    return tuple(map(_value, x)) if isinstance(x, list) else x


def description_to_json(d: Description) -> dict[str, Any]:
    """A description, without the contents of its arrays."""

    def size(p: Poly) -> Any:
        return encode(p, d.sizes)

    return {
        "name": d.name,
        "entry": d.entry,
        "origin": d.origin,
        "parameters": [
            [p.name, p.kind, p.type, [*map(size, p.shape)], list(p.layout), p.is_written, _static(p)]
            for p in d.parameters
        ],
        "structure": _tree_to_json(d.structure),
        "result": _tree_to_json(d.result),
        "sizes": list(d.sizes),
        "facts": [[f.op, size(f.a), size(f.b)] for f in d.size_guards],
        "inputs": d.inputs,
        "outputs": [[o.type, [*map(size, o.shape)], o.order, o.role, o.leaf] for o in d.outputs],
        "scratch": [[s.itemsize, [*map(size, s.lengths)], s.live_range, s.is_of_task] for s in d.scratch],
        "tasks": d.tasks,
        "strides": d.strides,
        "symbols": [*map(size, d.symbols)],
        "keep": d.keep,
        "scalars": d.scalars,
        "numbers": d.numbers.to_json(size),
        "small": [*map(size, d.small)],
        "scalar_results": sorted(d.scalar_results.items()),
        "views": [_view_to_json(v, size) for v in d.views],
    }


def _view_to_json(v: View, size: Any) -> list[Any]:
    shape, start = [*map(size, v.shape)], [*map(size, v.start)]
    return [v.base, v.dtype, shape, start, [[*map(size, x)] for x in v.steps], v.is_read_only]


def description_from_json(row: Mapping[str, Any], data: tuple[Any, ...]) -> Description:
    """The other way round; sizes stay encoded."""
    return Description(
        row["name"],
        row["entry"],
        row["origin"],
        tuple(
            Parameter(name, kind, dtype, tuple(shape), tuple(layout), written, value)
            for name, kind, dtype, shape, layout, written, value in row["parameters"]
        ),
        _tree_from_json(row["structure"]),
        _tree_from_json(row["result"]),
        tuple(row["sizes"]),
        tuple(SizeGuard(op, a, b, True) for op, a, b in row["facts"]),
        _pairs(row["inputs"]),
        data,
        tuple(Output(t, tuple(shape), tuple(order), role, leaf) for t, shape, order, role, leaf in row["outputs"]),
        tuple(
            Scratch(item, tuple(lengths), None if live_range is None else (live_range[0], live_range[1]), of_task)
            for item, lengths, live_range, of_task in row["scratch"]
        ),
        tuple(row["tasks"]),
        _pairs(row["strides"]),
        tuple(row["symbols"]),
        row["keep"],
        _pairs(row["scalars"]),
        numbers_from_json(row["numbers"]),
        tuple(row["small"]),
        dict(row["scalar_results"]),
        tuple(
            View((base[0], base[1]), dtype, tuple(shape), tuple(start), tuple(map(tuple, steps)), is_read_only)
            for base, dtype, shape, start, steps, is_read_only in row["views"]
        ),
    )


def _pairs(rows: Sequence[Sequence[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((a, b) for a, b in rows)


def _static(p: Parameter) -> Any:
    if p.kind == "static" and type(p.value) not in _STATIC:
        raise CannotExport(f"argument {p.name} is a {type(p.value).__name__}", "pass arrays, numbers and strings")
    return p.value


def _tree_to_json(x: Any) -> Any:
    if type(x) is not PyTree:
        return list(x) if isinstance(x, tuple) else x
    if x.make.__name__ not in _MAKERS or _MAKERS[x.make.__name__] is not x.make:
        raise CannotExport(f"arguments or results are in a {x.make.__name__}", "use a tuple, a list or a dict")
    return {"make": x.make.__name__, "items": [*map(_tree_to_json, x.items)], "keys": x.keys}


def _tree_from_json(x: Any) -> Any:
    if not isinstance(x, dict):
        return tuple(x) if isinstance(x, list) else x
    keys = None if x["keys"] is None else tuple(x["keys"])
    return PyTree(_MAKERS[x["make"]], tuple(map(_tree_from_json, x["items"])), keys)
