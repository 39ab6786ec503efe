"""Forward declarations of `hjit.trace.tracing.forward`."""

import inspect
import re
from pathlib import Path

import pytest

import hjit
import hjit.call.build  # loads the modules that define what is declared
from hjit.trace.tracing import forward

DECLARED = sorted(set(forward.__annotations__))


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_declared_is_defined_with_the_declared_number_of_arguments(name: str) -> None:
    function = getattr(forward, name)
    arguments = re.match(r"Callable\[\[(.*)\], ", forward.__annotations__[name])
    if forward.__annotations__[name] == "UfuncMethod":
        count = 4
    elif arguments is None:  # Callable[..., X]
        return
    else:
        count = (
            len(re.sub(r"\[[^][]*\]", "", re.sub(r"\[[^][]*\]", "", arguments[1])).split(",")) if arguments[1] else 0
        )
    inspect.signature(function).bind(*range(count))


def test_what_is_declared_is_used() -> None:
    texts = "".join(p.read_text() for p in Path(hjit.__file__).parent.rglob("*.py"))
    assert [n for n in DECLARED if f"forward.{n}" not in texts] == []


def test_what_is_not_declared_is_refused() -> None:
    def undeclared() -> None: ...

    with pytest.raises(NameError, match="is not declared"):
        forward.provides(undeclared)
