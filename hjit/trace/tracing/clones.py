"""The clones of a trace: what traced code gets in place of functions, pipelines and globals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Clones:
    """What stands for the user's functions while they are traced; `hjit.trace.capture.overlay` makes it.

    Attributes:
        functions: those without a closure that were made anew, and what they became; and those that are being made: a
            closure may hold its own function.
        overlays: of globals, by the identity of these.
        classes: the user's of which traced code makes objects, with what stands for each.
        pipelines: those that were met, by their `id`, with what stands for each, as code may ask for identity.
    """

    functions: dict[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)
    overlays: dict[int, Any] = field(default_factory=dict)
    classes: dict[type, type] = field(default_factory=dict)
    pipelines: dict[int, tuple[Any, Callable[..., Any]]] = field(default_factory=dict)
