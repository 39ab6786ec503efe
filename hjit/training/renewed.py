"""Features of stored samples, worked out anew where features have changed since: nothing is timed again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hjit.errors import HjitError, ModelError
from hjit.model import network
from hjit.model.fit import Program
from hjit.model.generator import random_program
from hjit.model.samples import Dataset, Source
from hjit.sched.language.tree import from_json
from hjit.training.cases import pipeline_of, space_for
from hjit.training.programs import options_of


def renewed(data: Dataset, show: Callable[[int], None] = lambda done: None) -> tuple[Dataset, Counter[str]]:
    """Samples with the features that this version of hjit gives their schedules.

    Args:
        data: with sources.
        show: called after each program with how many are done.

    Returns:
        The samples, and why others are left out: programs that are made otherwise now.

    Raises:
        ModelError: nothing says what the programs and schedules are, or none is left.
    """
    if not data.sources:
        raise ModelError("these samples do not say of which schedules they are")
    kept: list[tuple[Program, tuple[str, ...], Source]] = []
    lost: Counter[str] = Counter()
    for k, (program, origins, source) in enumerate(zip(data.programs, data.origins, data.sources, strict=True)):
        try:
            kept.append((_renewed(program, source), origins, source))
        except HjitError as error:
            lost[f"{type(error).__name__}: {str(error).splitlines()[0]}"] += 1
        show(k + 1)
    if not kept:
        raise ModelError(f"no program of these samples is the one that it was: {dict(lost)}")
    programs, names, sources = zip(*kept, strict=True)
    return Dataset(programs, names, sources), lost


def _renewed(program: Program, source: Source) -> Program:
    made, options = random_program(source.seed, source.pixels, source.stages), options_of(source.seed, source.target)
    pipe = pipeline_of(made.function, options)
    variant = pipe.variant_of(tuple(made.inputs(source.seed)), {}, options)
    if len(variant.graphs) != 1 or len(variant.graphs[0].stages) != len(program.pipeline):
        raise ModelError("its program has other stages now")
    space = space_for(variant, options, network.random(source.seed))
    rows = [space.features(from_json(tree), frozenset(inlined)) for tree, inlined in map(json.loads, source.trees)]
    return replace(program, pipeline=space.nests.pipeline, schedule=np.stack(rows))
