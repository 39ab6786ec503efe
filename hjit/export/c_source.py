"""The C header of an exported function, and the C code between it and the kernel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hjit.errors import HjitError, OptionError
from hjit.export.c_numbers import C_TYPES, COMPARISONS, converted, entries, size, size_guard
from hjit.export.description import Description, Output, Parameter
from hjit.export.targets import Platform
from hjit.kernels.llvm.driver.arrays import data_offset
from hjit.kernels.lower.params import KEEP, SMALL_ARRAY, TASKS_PER_THREAD
from hjit.version import __version__

MAX_DIMS = 8  # HJIT_MAX_DIMS of hjit.h
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true "
    "false nullptr class new delete this template typename operator public private protected try catch throw context "
    "n status shape params memory parts".split()
)
# what the headers of the generated code declare, and what it calls
_FUNCTIONS = frozenset(
    "main abort abs calloc ceil copysign exit exp fabs floor fmod free getenv hypot isfinite isinf isnan log log10 "
    "log2 malloc memcmp memcpy memmove memset nan pow realloc rint round signbit sin cos sqrt strcmp strlen system tan "
    "trunc".split()
)
_DECLARED = re.compile(
    r"hj_\w*|hjit_\w*|HJ_\w*|HJIT_\w*|v\d+|NULL|NAN|INFINITY|EOF|linux|unix|u?int\d+_t|size_t|M_\w+|[A-Z]\w*_(MAX|MIN|WIDTH)"
)


def is_identifier(name: str) -> bool:
    """May a C function be called so?"""
    return name.isidentifier() and name.isascii() and not _is_taken(name)


def _is_taken(name: str) -> bool:
    return name in _KEYWORDS or name in _FUNCTIONS or _DECLARED.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Source:
    """Texts.

    Attributes:
        header: ``NAME.h``.
        code: ``NAME.c``, which includes it.
    """

    header: str
    code: str


def source_of(levels: Sequence[tuple[Description, Platform]]) -> Source:
    """The header and the code of an exported function.

    Args:
        levels: what it is for; of several, the highest that the processor has is chosen when the library is loaded.

    Raises:
        HjitError: C has no such arguments.
    """
    d, names = levels[0][0], _Names(levels[0][0])
    for p in d.parameters:
        if len(p.shape) > MAX_DIMS:
            raise HjitError(f"export: {p.name} has more than {MAX_DIMS} dimensions")
    room = Path(__file__).parent
    header = _header(d, names, [p for _, p in levels], (room / "hjit.h").read_text())
    first = f'#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n#include "{d.name}.h"\n'
    if len(levels) == 1:
        own = _code(d, names, levels[0][1], "")
    else:
        own = (line for one, p in levels for line in _code(one, _Names(one), p, level_suffix(p)))
        own = itertools.chain(own, _chosen(d, names, [p for _, p in levels]))
    code = "\n".join([first, (room / "runtime.c").read_text(), *own, ""])
    return Source(header, code)


def level_suffix(platform: Platform) -> str:
    """What the names of one of several levels end in: ``_v3``."""
    return f"_{platform.name.rpartition('-')[2]}"


class _Names:
    """Names in C of the arguments and the results.

    Attributes:
        parameters: by leaf; those that C has.
        results: (name, number of the output), in the order of the function's results.
    """

    def __init__(self, d: Description) -> None:
        taken: set[str] = set()
        self.parameters = {k: _unique(p.name, taken) for k, p in enumerate(d.parameters) if p.kind != "static"}
        outputs = [k for k, o in enumerate(d.outputs) if o.role == "result"]
        wanted = _names_of_results(d.result)
        self.results = [
            (_unique(wanted.get(k) or ("out" if len(outputs) == 1 else f"out{j}"), taken), k)
            for j, k in enumerate(sorted(outputs, key=list(wanted).index))
        ]

    def arrays(self, d: Description) -> list[tuple[str, Parameter]]:
        return [(self.parameters[k], p) for k, p in enumerate(d.parameters) if p.kind == "array"]


def _names_of_results(result: object) -> dict[int, str]:
    """The outputs in the order of the results; their names where they are in a dict, or a named tuple."""
    found: dict[int, str] = {}

    def look(x: object, name: str) -> None:
        if isinstance(x, tuple):
            if x[0] == "output":
                found[x[1]] = name
            return
        keys = getattr(x, "keys", None) or getattr(getattr(x, "make", None), "_fields", ())
        items: Sequence[object] = getattr(x, "items", ())
        for k, item in enumerate(items):
            look(item, str(keys[k]) if keys else "")

    look(result, "")
    return found


def _unique(name: str, taken: set[str]) -> str:
    found = re.sub(r"\W", "_", name, flags=re.ASCII) or "arg"
    if _is_taken(found) or found[0].isdigit():
        found += "_"
    while found in taken:
        found += "_"
    taken.add(found)
    return found


# -- the header


def _header(d: Description, names: _Names, platforms: Sequence[Platform], common: str) -> str:
    guard = f"HJIT_EXPORT_{d.name.upper()}_H"
    return "\n".join(
        [
            f"/* {d.name}: compiled by hjit {__version__} for {', '.join(p.name for p in platforms)}.",
            *_about(d, names),
            "*/",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            common,
            '#ifdef __cplusplus\nextern "C" {\n#endif',
            "",
            "/* Shapes and strides of the results for these arguments, whose data may be NULL. */",
            f"int {d.name}_shape({', '.join(_for_shape(d, names))});",
            "",
            "/* The function itself. Returns an hjit_status. `context` may be NULL. */",
            f"int {d.name}({', '.join(_for_call(d, names))});",
            "",
            *_header_of_levels(d, platforms),
            "#ifdef __cplusplus\n}\n#endif\n#endif",
            "",
        ]
    )


def _for_shape(d: Description, names: _Names) -> list[str]:
    found = [f"const hjit_array *{n}" for n, _ in names.arrays(d)]
    return [*found, *(f"hjit_array *{n}" for n, _ in names.results)] or ["void"]


def _for_call(d: Description, names: _Names) -> list[str]:
    found = []
    for k, name in names.parameters.items():
        p = d.parameters[k]
        found.append(f"const hjit_array *{name}" if p.kind == "array" else f"{_c_type(p)} {name}")
    return [*found, *(f"const hjit_array *{n}" for n, _ in names.results), "const hjit_context *context"]


def _c_type(p: Parameter) -> str:
    if p.type not in C_TYPES or p.type == "<f2":
        raise HjitError(f"export: argument {p.name} is a number of type {p.type}. What to do: pass a float")
    return C_TYPES[p.type]


def _about(d: Description, names: _Names) -> Iterator[str]:
    """What a C programmer must know of the arguments."""
    sizes: dict[str, str] = {name: f"{names.parameters[k]}.shape[{axis}]" for name, (k, axis) in d.extents().items()}

    def text(p: object) -> str:
        found = str(p)
        for name in sorted(sizes, key=len, reverse=True):
            found = found.replace(name, sizes[name])
        return found

    for name, p in names.arrays(d):
        shape = ", ".join("any" if not n.is_const else str(n) for n in p.shape)
        layout = ", ".join("any" if s is None else str(s * np.dtype(p.type).itemsize) for s in p.layout)
        changed = "; it is changed" if p.is_written else ""
        yield f"   {name}: {np.dtype(p.type)} [{shape}], strides [{layout}] bytes{changed}"
    for name, k in names.results:
        o = d.outputs[k]
        shape = ", ".join(text(o.shape[axis]) for axis in o.order)
        yield f"   {name}: a result, {np.dtype(o.type)} [{shape}]"
    for p in d.parameters:
        if p.kind == "static":
            yield f"   compiled for {p.name}={_comment(repr(p.value))}"
    for k, expected in d.numbers.guards:
        of = [names.parameters[leaf] for leaf in sorted(d.numbers.leaves_of(k))]
        is_itself = d.numbers.entries[k].function == "leaf"
        yield (
            f"   compiled for {of[0]}={expected!r}"
            if is_itself
            else (f"   compiled for the number {expected!r}, which is computed of {', '.join(of)}")
        )
    if d.size_guards:
        yield "   Sizes must be such that"
    for f in d.size_guards:
        yield f"     {text(f.a)} {COMPARISONS[f.op]} {text(f.b)}"


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")[:200]


# -- the code


def _code(d: Description, names: _Names, platform: Platform, suffix: str) -> Iterator[str]:
    """`suffix`: of the names, where this is one of several levels, and not what programs call."""
    yield f"/* -- {d.name}{suffix and f', {platform.name}'} */\n"
    yield f"extern int32_t {d.entry}(int64_t *params);"
    for k in range(len(d.data)):
        yield f"extern const unsigned char {data_name(d.entry, k)}[];"
    yield ""
    yield from _cpu(platform, suffix)
    yield from _sizes(d, names, suffix)
    yield from _shape(d, names, suffix)
    yield from _call(d, names, suffix)


def _header_of_levels(d: Description, platforms: Sequence[Platform]) -> Iterator[str]:
    if len(platforms) > 1:
        known = ", ".join(f'"{p.name}"' for p in platforms)
        yield f"/* Which of {known} runs on this processor; NULL: none. */"
        yield f"const char *{d.name}_target(void);\n"


def _chosen(d: Description, names: _Names, platforms: Sequence[Platform]) -> Iterator[str]:
    """What programs call: the functions of the highest level that the processor has."""
    yield f"/* -- {d.name}: the highest level that this processor has */\n"
    shape, call = ", ".join(_for_shape(d, names)), ", ".join(_for_call(d, names))
    yield f"static const struct hj_level {{\n  const char *name;\n  int (*shape)({shape});\n  int (*call)({call});"
    yield "} hj_levels[] = {"
    for p in platforms:
        own = f"{d.name}{level_suffix(p)}"
        yield f'  {{"{p.name}", {own}_shape, {own}}},'
    yield "  {NULL, NULL, NULL},\n}, *hj_level;\n"
    yield "__attribute__((constructor)) static void hj_choose(void) {"
    for k, p in reversed([*enumerate(platforms)]):
        yield f"  if (hj_is_right_cpu{level_suffix(p)}()) {{\n    hj_level = hj_levels + {k};\n    return;\n  }}"
    yield f"  hj_level = hj_levels + {len(platforms)};\n}}\n"
    yield "/* Other libraries may call before this one's constructors have run. */"
    yield "static const struct hj_level *hj_here(void) {\n  if (!hj_level) hj_choose();\n  return hj_level;\n}\n"
    yield f"const char *{d.name}_target(void) {{ return hj_here()->name; }}\n"
    for name, member, parameters in ((f"{d.name}_shape", "shape", shape), (d.name, "call", call)):
        given = ", ".join(p.rpartition(" ")[2].lstrip("*") for p in parameters.split(", ") if p != "void")
        yield f"int {name}({parameters}) {{"
        yield "  const struct hj_level *hj_one = hj_here();"
        yield f"  return hj_one->{member} ? hj_one->{member}({given}) : HJIT_WRONG_CPU;\n}}\n"


def data_name(entry: str, k: int) -> str:
    """The symbol of an array that is part of the code."""
    return f"{entry}_data{k}"


def _cpu(platform: Platform, suffix: str) -> Iterator[str]:
    yield f"static int hj_is_right_cpu{suffix}(void) {{"
    if platform.checked:
        yield "  static int known; /* 1: yes, 2: no */"
        checks = " && ".join(f'__builtin_cpu_supports("{f}")' for f in platform.checked)
        yield "  __builtin_cpu_init();"
        yield f"  if (!known) known = {checks} ? 1 : 2;"
        yield "  return known == 1;"
    else:
        yield "  return 1;"
    yield "}\n"


def _sizes(d: Description, names: _Names, suffix: str) -> Iterator[str]:
    """The run-time sizes, and what must hold of them."""
    where = {name: k for k, name in enumerate(d.sizes)}
    arguments = [f"const hjit_array *{n}" for n, _ in names.arrays(d)]
    yield f"static int hj_sizes{suffix}({', '.join([*arguments, 'int64_t *n'])}) {{"
    yield "  int status;"
    yield "  (void)status, (void)n;"
    for name, p in names.arrays(d):
        shape = _array("int64_t", [n.const if n.is_const else -1 for n in p.shape])
        yield f"  if ((status = hj_checked({name}, {len(p.shape)}, {shape}))) return status;"
    for name, (k, axis) in d.extents().items():
        yield f"  n[{where[name]}] = {names.parameters[k]}->shape[{axis}];"
    for f in d.size_guards:
        yield f"  if (!({size_guard(f, where)})) return HJIT_WRONG_SHAPE;"
    yield "  return HJIT_OK;\n}\n"


def _array(kind: str, items: Iterable[object]) -> str:
    """A compound literal; one element at least, as C has no empty ones."""
    return f"(const {kind}[]){{{', '.join(map(str, items)) or '0'}}}"


def _result_lines(d: Description, k: int, target: str) -> str:
    o = d.outputs[k]
    where = {name: j for j, name in enumerate(d.sizes)}
    shape = _array("int64_t", [size(p, where) for p in o.shape])
    order = _array("int32_t", o.order)
    return f"hj_result({target}, {np.dtype(o.type).itemsize}, {len(o.shape)}, {shape}, {order});"


def _given(d: Description, names: _Names) -> str:
    return ", ".join([*(n for n, _ in names.arrays(d)), "n"])


def _shape(d: Description, names: _Names, suffix: str) -> Iterator[str]:
    yield f"{'static ' if suffix else ''}int {d.name}{suffix}_shape({', '.join(_for_shape(d, names))}) {{"
    yield f"  int64_t n[{max(len(d.sizes), 1)}];"
    yield f"  int status = hj_sizes{suffix}({_given(d, names)});"
    yield "  if (status) return status;"
    for name, k in names.results:
        yield f"  if (!{name}) return HJIT_NULL_POINTER;"
        yield f"  {_result_lines(d, k, name)}"
    yield "  return HJIT_OK;\n}\n"


def _call(d: Description, names: _Names, suffix: str) -> Iterator[str]:
    where = {name: k for k, name in enumerate(d.sizes)}
    yield f"{'static ' if suffix else ''}int {d.name}{suffix}({', '.join(_for_call(d, names))}) {{"
    body = [
        f"int64_t n[{max(len(d.sizes), 1)}];",
        f"int status = hj_sizes{suffix}({_given(d, names)});",
        "if (status) return status;",
        f"if (!hj_is_right_cpu{suffix}()) return HJIT_WRONG_CPU;",
        *_arguments_checked(d, names),
        *(f"if ({size(p, where)} > {SMALL_ARRAY}) return HJIT_TOO_LARGE;" for p in d.small),
        *entries(d.numbers, names.parameters, where),
        "const int64_t threads = context && context->threads > 1 ? context->threads : 1;",
        f"const int64_t tasks = threads == 1 ? 1 : threads * {TASKS_PER_THREAD};",
        "(void)tasks;",
        *_memory(d, where),
        *_params(d, names, where),
        "hj_context = context;",
        f"int is_bad = {d.entry}(params) != 0;",
        "status = is_bad ? HJIT_OUT_OF_BOUNDS : HJIT_OK;",
        *_finished(d, names),
        "hj_release(context, &memory);",
        "return status;",
    ]
    yield from (f"  {line}" for line in body)
    yield "}"


def _arguments_checked(d: Description, names: _Names) -> Iterator[str]:
    """Strides, missing data, and memory that is shared."""
    arrays = [(n, np.dtype(p.type).itemsize, p.is_written) for n, p in names.arrays(d)]
    for name, p in names.arrays(d):
        steps = _array("int64_t", ["INT64_MIN" if s is None else s for s in p.layout])
        item = np.dtype(p.type).itemsize
        yield f"if ((status = hj_strided({name}, {item}, {steps}))) return status;"
        yield f"if (!hj_has_data({name})) return HJIT_NULL_POINTER;"
        if d.small:
            yield f"if (hj_reach({name}, {item}) > {SMALL_ARRAY}) return HJIT_TOO_LARGE;"
        if p.is_written:
            yield f"if (hj_overlaps_itself({name}, {item})) return HJIT_OVERLAP;"
    for name, k in names.results:
        yield "{"
        yield "  hjit_array expected = {0};"
        yield f"  {_result_lines(d, k, '&expected')}"
        yield f"  if ((status = hj_alike({name}, &expected))) return status;"
        yield "}"
        arrays.append((name, np.dtype(d.outputs[k].type).itemsize, True))
    for j, (a, a_item, a_changes) in enumerate(arrays):
        for b, b_item, b_changes in arrays[:j]:
            if a_changes or b_changes:
                yield f"if (hj_overlap({a}, {a_item}, {b}, {b_item})) return HJIT_OVERLAP;"


def _product(factors: Iterable[str]) -> str:
    return " * ".join([*(f"({f})" for f in factors)]) or "1"


def _memory(d: Description, where: dict[str, int]) -> Iterator[str]:
    """One block: stages in scratch memory, then what is written to arguments, and checks."""
    parts = [(k, s) for k, s in enumerate(d.scratch) if s.live_range is not None]
    yield "hj_memory memory;"
    yield "int64_t bytes = 0;"
    yield f"hj_part parts[{max(len(parts), 1)}];"
    yield "(void)parts;"
    for j, (_, s) in enumerate(parts):
        assert s.live_range is not None
        amount = _product(size(p, where) for p in s.lengths)
        times = " * tasks" if s.is_of_task else ""
        yield (
            f"parts[{j}] = (hj_part){{hj_staggered(hj_aligned({amount} * {s.itemsize}){times}), "
            f"{s.live_range[0]}, {s.live_range[1]}, -1}};"
        )
    if parts:
        yield f"bytes = hj_place(parts, {len(parts)});"
    for k, o in enumerate(d.outputs):
        if o.role != "result":
            yield f"const int64_t at{k} = bytes = hj_aligned(bytes);"
            yield f"bytes += {_product(size(p, where) for p in o.shape)} * {np.dtype(o.type).itemsize};"
    yield "if ((status = hj_allocate(context, bytes, &memory))) return status;"
    for k, o in enumerate(d.outputs):
        if o.role != "result":
            yield f"void *const own{k} = memory.data + at{k};"
    for k in range(len(d.data)):
        yield f"const void *const data{k} = {data_name(d.entry, k)};"


def _params(d: Description, names: _Names, where: dict[str, int]) -> Iterator[str]:
    """The parameter block; see `hjit.kernels.lower.params`."""
    parts = {k: j for j, k in enumerate(k for k, s in enumerate(d.scratch) if s.live_range is not None)}
    results = {k: n for n, k in names.results}

    def array(place: str) -> str:
        return f"(int64_t)(uintptr_t)&{place} - {data_offset()}"

    slots = ["(int64_t)(uintptr_t)hj_parallel_for", "threads", "(int64_t)(uintptr_t)memory.data", "0"]
    slots += [array(f"{names.parameters[k]}->data" if kind == "leaf" else f"data{k}") for kind, k in d.inputs]
    slots += [array(f"{results[k]}->data" if k in results else f"own{k}") for k in range(len(d.outputs))]
    slots += [f"parts[{parts[k]}].at" if k in parts else "0" for k in range(len(d.scratch))]
    for k in d.tasks:
        s = d.scratch[k]
        slots.append(f"hj_aligned({_product(size(p, where) for p in s.lengths)} * {s.itemsize})")
    for k, axis in d.strides:
        kind, j = d.inputs[k]
        if kind == "leaf":
            item = np.dtype(d.parameters[j].type).itemsize
            slots.append(f"{names.parameters[j]}->strides[{axis}] / {item}")
        else:
            slots.append(str(d.data[j].strides[axis] // d.data[j].itemsize))
    slots += [size(p, where) for p in d.symbols]
    slots += [str(KEEP)] * d.keep
    numbers = []
    for j, (dtype, k) in enumerate(d.scalars):
        kind = d.numbers.entries[k].kind
        numbers += [f"{C_TYPES[dtype]} s{j};", *converted(f"s{j}", f"v{k}", kind, dtype)]
        slots.append({"<f4": f"hj_float_bits(s{j})", "<f8": f"hj_double_bits(s{j})"}.get(dtype, f"(int64_t)s{j}"))
    yield from numbers
    yield "int64_t params[] = {"
    yield from (f"  {slot}," for slot in slots)
    yield "};"


def _finished(d: Description, names: _Names) -> Iterator[str]:
    """What NumPy refuses; then what is written to arguments."""
    for k, o in enumerate(d.outputs):
        if o.role == "check":
            yield f"if (!status && *(const uint8_t *)own{k}) status = HJIT_REFUSED;"
    for k, o in enumerate(d.outputs):
        if o.role == "written":
            item = np.dtype(o.type).itemsize
            yield f"if (!status) hj_write({names.parameters[o.leaf]}, own{k}, {item});"


def check_name(name: str) -> str:
    """A name for a C function.

    Raises:
        OptionError: it is none.
    """
    if not is_identifier(name):
        raise OptionError(f"name={name!r}: no name for a C function of one's own")
    return name


__all__ = ["Output", "Source", "check_name", "data_name", "is_identifier", "source_of"]
