"""Statements that read or change what is outside the function, and arrays that are not wholly written.

They are drawn as those of `tests.campaign.idioms` are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.campaign.idioms import flat, lines, some

if TYPE_CHECKING:
    from tests.campaign.source import Author

GAINS = ("2", "3", "0.5", "np.float32(1.5)", "np.int16(2)", "-1")


def objects(w: Author) -> dict[str, str]:
    """The function and the configuration among the arguments, as they are made for a call."""
    gain, offset = w.one_of(*GAINS), w.one_of("None", "None", "1", "0.25")
    kind = w.objects
    made = f"method({w.seed}, {gain})" if kind == "method" else f"function({w.seed}, {kind!r}, {gain}, {offset})"
    about = f"config({w.seed + 1}, {w.one_of('None', *GAINS)}, {w.one_of('None', '1', '0.25')})"
    return {"fn": f"objects.{made}", "cfg": f"objects.{about}"}


def split_at(w: Author, v: str, a: str) -> str:
    """What is not traced, and may change nothing."""
    text = w.one_of(
        f"{a}.tolist()", f"list(map(str, {a}.shape))", f"np.unique({a})", f"{a}[{a} > 1]", f"{a}.astype(object)", "0"
    )
    return f"x{v} = {text}; del x{v}"


def counts_in_a_global(w: Author, v: str) -> str:
    a = w.pick(some)
    count = f"g{v[1:]}"
    return lines(
        f"global {count}",
        *w.one_of(
            (f"{count} = {w.scalar()}",),
            ("try:", f"    {count} = {count} + 1", "except NameError:", f"    {count} = 1"),
            (f"{count} = {count} + 1 if '{count}' in globals() else 1",),
            (f"{count} = globals().get('{count}', 0) + 1",),
        ),
        split_at(w, v, a),
        *w.one_of((), (f"{count} += 1",), (f"{count} = {count} * 2",)),
        f"{v} = {a} * {count}",
    )


def counts_around_a_function(w: Author, v: str) -> str:
    a = w.pick(some)
    g = f"g{v[1:]}"
    return lines(
        f"def {g}(x):",
        f"    count = {w.one_of('1', 'n', '0')}",
        "    def step(y):",
        "        nonlocal count",
        f"        count {w.one_of('+= 1', '= count + 2', '-= 1')}",
        "        return y * count",
        f"    {w.one_of('first = step(x)', 'step(x); first = x', 'first = step(step(x))')}",
        f"    {split_at(w, v, 'x')}",
        "    return first + step(x)",
        f"{v} = {g}({a})",
    )


def given_functions(w: Author, v: str) -> str:
    a = w.pick(some)
    return w.one_of(
        f"{v} = fn({a})",
        f"{v} = fn(fn({a}))",
        lines(split_at(w, v, a), f"{v} = fn({a}) + fn({a})"),
        f"{v} = list(map(fn, [{a}, {a}]))[1]",
        f"{v} = (lambda f, x: f(x))(fn, {a})",
    )


def configured(w: Author, v: str) -> str:
    a = w.pick(some)
    return w.one_of(
        f"{v} = {a} * getattr(cfg, 'gain', 1)",
        f"{v} = {a} + cfg.offset if hasattr(cfg, 'offset') else {a} - 1",
        f"{v} = {a} * vars(cfg).get('gain', 1)",
        f"{v} = cfg.scaled({a}) + getattr(cfg, 'offset', 0)",
        lines(
            "try:", f"    {v} = {a} * cfg.gain", "except AttributeError:", f"    {v} = {a} + getattr(cfg, 'offset', 3)"
        ),
        lines(split_at(w, v, a), f"{v} = {a} * getattr(cfg, 'gain', 2)"),
    )


def partly_written(w: Author, v: str) -> str:
    a = w.pick(flat)
    out = f"o{v[1:]}"
    where = w.one_of("1:-1", "1:-1, 1:-1", "::2", ":, 1:", "2:")
    return lines(
        w.one_of(f"{out} = np.empty_like({a})", f"{out} = np.empty({a}.shape, {a}.dtype)"),
        *w.one_of((), (split_at(w, v, a),)),
        f"{out}[{where}] = {a}[{where}] {w.one_of('* 2', '+ 1', '| n' if w.env[a].dtype.kind in 'iu' else '* t')}",
        *w.one_of((), (f"{out} = {out} + 1",), (f"{out} = np.where({a} > 1, {out}, {a})",)),
        *w.one_of((), (split_at(w, v, a),)),
        f"{v} = {out}[{where}].copy()",
        f"del {out}",
    )


IDIOMS = (counts_in_a_global, counts_around_a_function, given_functions, configured, partly_written)
