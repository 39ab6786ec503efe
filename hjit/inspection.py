"""`Inspectable`: methods that show the steps from arguments to machine code, on the CPU or a GPU; and `export`."""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hjit.call.arguments import is_dask_array, is_device_array, key_of
from hjit.call.compiled_function import P, R
from hjit.call.entry import Entry
from hjit.call.other_arrays.byte_orders import native_arguments
from hjit.errors import BudgetError, HjitError, OptionError, ScheduleError, TraceError
from hjit.options import Options
from hjit.process import deadline, forks, shown_warnings
from hjit.trace.capture.trace import flatten_arguments
from hjit.trace.tracing.frames import uncounted
from hjit.tunable import Tunable

if TYPE_CHECKING:
    from hjit.call.stored.refusals import Refusal
    from hjit.call.variant import Variant
    from hjit.export.library import Exported
    from hjit.report.performance.report import Report
    from hjit.sched.hand.schedule import Schedule
    from hjit.trace.ir.graph import Graph
    from hjit.trace.passes.rewrites import Rewrites
    from hjit.tuning.choice import Scheduler

FORESIGHT_SECONDS = 1.0  # CPU time for which `explain` may trace a call that has not been made


@uncounted
class Inspectable(Tunable[P, R]):
    """A compiled function with methods that show how calls with given arguments run.

    They take the arguments of a call. Methods that show compiled code compile it if necessary. They raise a
    `TraceError` if such calls cannot be traced as a whole, and any exception that NumPy raises for the arguments.
    """

    def variant_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options, schedule: Scheduler | None = None
    ) -> Variant:
        """What a call with these arguments runs, or would run under these options and this schedule; for tools."""
        from hjit.call.build import TracingFailed
        from hjit.call.variant import OutOfBounds

        args, kwargs = native_arguments(args, kwargs)
        structure, leaves = flatten_arguments(args, kwargs)
        if any(map(is_dask_array, leaves)):
            raise HjitError(
                f"{self.__name__}: chunks of Dask's arrays have kernels of their own. What to do: look at those of a "
                "NumPy array as large as one chunk, or at explain(), which says what each task computes"
            )
        if any(map(is_device_array, leaves)):
            if options.target != "cuda":
                return self.on("cuda").variant_of(args, kwargs, self.on("cuda")._state.options.here(), schedule)

            from hjit.call.other_arrays.on_device import adopt

            adopt(leaves)
        entry = self._entries.get(key_of(args, kwargs)) or Entry()
        usable = (v for v in entry.variants if options.blas is not False or not v.has_products)
        variant = next((v for v in usable if v.guards.values(leaves) is not None), None)
        if variant is None:
            with self._state.lock, forks.builds.inside():
                try:
                    variant = self._state.build(self._new.request(structure, leaves, options, schedule)).variant
                except OutOfBounds:
                    raise IndexError("index out of bounds") from None
                except TracingFailed as failed:
                    raise self._new.numpys_error(failed.error, structure, leaves) from None
        return variant

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """How calls with such arguments run; if NumPy runs them: why, and what to do."""
        structure, leaves = flatten_arguments(args, kwargs)
        if any(map(is_dask_array, leaves)):
            from hjit.call.other_arrays import on_dask

            return on_dask.explained(self._others.dask_settings(self), structure, leaves)
        from hjit.report.explain import explained, foreseen, in_parts, of_reported_errors

        if shown_warnings.float_errors_are_reported() and self._is_all_numpy(args, kwargs):
            return of_reported_errors(self.__name__)
        entry = self._entries.get(key_of(args, kwargs))
        if entry is None or not entry.is_known:
            return foreseen(self.__name__, self._foreseen(args, kwargs))
        if entry.plain is None and entry.converted is not None:
            args, kwargs = native_arguments(args, kwargs)
            return f"{entry.converted}\n{self.explain(*args, **kwargs)}"
        if entry.plain is None and entry.parts is not None and self.parts is not None:
            return "\n".join(in_parts(self.__name__, self.parts, entry.seconds))
        return explained(self.__name__, entry, is_host=not any(map(is_device_array, leaves)))

    def _foreseen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Refusal | str | None:
        """What would become of a call with such arguments, see `foreseen`: it is traced, for a second at most."""
        from hjit.call.build import Request, TracingFailed, traced_call
        from hjit.call.stored.refusals import Refusal
        from hjit.call.variant import OutOfBounds

        args, kwargs = native_arguments(args, kwargs)
        structure, leaves = flatten_arguments(args, kwargs)
        options = self._state.options.here()
        if options.target == "cuda" or any(map(is_device_array, leaves)) or options.disable:
            return ""
        try:
            with self._state.lock, forks.builds.inside(), deadline.budget(FORESIGHT_SECONDS, self.__name__):
                traced_call(Request(self.py_func, structure, leaves, options, self._state.schedule))
        except BudgetError:
            return "Tracing it takes longer than a second"
        except TraceError as error:
            if isinstance(self.py_func, types.FunctionType) and options.on_unsupported == "break":
                return Refusal.of(error, self.py_func)
            return f"It would not be compiled: {error}"
        except (HjitError, OutOfBounds, TracingFailed, MemoryError) as error:
            return f"It would not be compiled: {error}"
        return None

    def report(self, *args: Any, **kwargs: Any) -> Report:
        """How calls with such arguments run, and where their time goes.

        It prints as text, displays as HTML in a notebook, and `save` writes a page with pictures: the Graph, the
        schedule next to a drawing of its loops, the candidates that the search compared, predicted cost by stage, term
        and source line, time and bytes relative to the machine's bandwidth, and graph breaks. Kernels run several times
        to be timed; the arguments are not changed, and the function itself is not called.
        """
        from hjit.report.performance.gather import Call
        from hjit.report.performance.report import report_of

        structure, leaves = flatten_arguments(args, kwargs)
        if any(map(is_device_array, leaves)) and self._state.options.here().target != "cuda":
            return self.on("cuda").report(*args, **kwargs)
        entry = self._entries.get(key_of(args, kwargs))
        options = self._state.options.here()
        return report_of(Call(self, options, self._state.schedule, entry, args, kwargs, structure, leaves))

    def _inspect(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        from hjit.call.build import on_deep_stack
        from hjit.kernels.runtime.lowered import lowered

        options = self._state.options.here()
        if options.target == "cuda":
            from hjit.kernels.cuda.runtime import inspection

            return [on_deep_stack(inspection.of, b) for b in self._device_kernels(args, kwargs)]
        variant = self.variant_of(args, kwargs, options, self._state.schedule)
        return [on_deep_stack(lowered, s.scheduled, options) for s in variant.segments if s.scheduled is not None]

    def graph(self, *args: Any, **kwargs: Any) -> Any:
        """The canonical Graph for these arguments; printable, and a picture in a notebook."""
        from hjit.report.listing import Listing

        return Listing([p.graph for p in self._inspect(args, kwargs)])

    def tree(self, *args: Any, **kwargs: Any) -> Any:
        """The schedule tree for these arguments: found by a search, given to `use`, or the default one.

        It is a picture in a notebook.
        """
        from hjit.report.listing import Listing

        return Listing([p.schedule for p in self._inspect(args, kwargs)])

    def schedule(self, *args: Any, **kwargs: Any) -> Schedule:
        """The default schedule, or the one given to `use`, to be edited for `use`.

        It is printable, and a picture in a notebook.
        """
        from hjit.call.segments import canonicaliser_for, graphs_of, recorded
        from hjit.kernels.runtime import features
        from hjit.sched.hand.schedule import Schedule

        options = replace(self._state.options.here(), blas=False)  # all stages are there to be scheduled
        try:
            variant = self.variant_of(args, kwargs, options, self._state.schedule)
        except ScheduleError:  # the one in use is not legal here: it is what is to be edited
            variant = self.variant_of(args, kwargs, options)
        whole, goals = recorded(variant.rec), variant.trace.goals
        target = features.schedule_target(options.target)

        def graphs(rewrites: Rewrites) -> list[Graph]:
            made = graphs_of(whole, goals, rewrites, canonicaliser_for(target, options.fast_math))
            return [g for g in made if g.outputs]

        return Schedule(graphs, getattr(self._state.schedule, "directives", ()), target)

    def loops(self, *args: Any, **kwargs: Any) -> Any:
        """The loop IR after lowering."""
        from hjit.report.listing import Listing

        return Listing([p.program for p in self._inspect(args, kwargs)])

    def inspect_llvm(self, *args: Any, **kwargs: Any) -> str:
        """The LLVM IR before optimisation."""
        return "\n".join(p.llvm for p in self._on_cpu()._inspect(args, kwargs))

    def inspect_asm(self, *args: Any, **kwargs: Any) -> str:
        """The assembly after optimisation."""
        from hjit.kernels.runtime.backend import assembly

        here = self._on_cpu()
        options = here._state.options.here()
        return "\n".join(assembly(p.llvm, p.name, options.target) for p in here._inspect(args, kwargs))

    # -- out of Python
    def export(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        name: str = "",
        target: str = "",
        targets: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> Exported:
        """Write the function as a C library, which does not need Python: ``f.export("f.so", img)`` also writes ``f.h``.

        Sizes, strides and numbers may differ from those of `args`; dtypes, numbers of dimensions, and values that the
        code depends on may not. Anything else that the function reads is stored in the library as it is now. The
        header describes what the library accepts.

        Args:
            path: a shared library, NAME.so, or an object file, NAME.o, with a C file next to it.
            name: the name of the C function; by default that of `path` without its suffix.
            target: "cpu": this machine's x86-64 level; "x86-64-v2", "-v3" or "-v4"; "aarch64": object files only. The
                default is the pipeline's target.
            targets: several x86-64 levels instead, in one library: the highest level that the processor supports is
                chosen when the library is loaded. There is an object file for each level, ``NAME_v3.o``.

        Raises:
            OptionError: there is no such target, or both `target` and `targets` are given, or one in the other's form.
            FileNotFoundError: there is no such folder.
            HjitError: the function needs Python when it runs (a call that is not compiled, random numbers, a decision
                on values), or there is no C compiler.
        """
        from hjit.call.build import Request
        from hjit.export.library import export

        options, scheduler = self.in_force()
        if not isinstance(target, str):
            several = f". Several in one library: targets={[*target]!r}" if isinstance(target, Iterable) else ""
            raise OptionError(f"target={target!r}: the name of one{several}")
        if isinstance(targets, str):
            raise OptionError(f"targets={targets!r}: a list of names. For one: target={targets!r}")
        if targets is not None and not targets:
            raise OptionError("targets=[]: name at least one")
        if target and targets:
            raise OptionError(f"target={target!r} and targets={list(targets)!r}: give one of them")
        where = [target or ("cpu" if options.target == "cuda" else options.target)]
        request = Request(self.py_func, *flatten_arguments(args, kwargs), options, scheduler)
        return export(request, name or Path(path).stem, path, targets or where)

    def in_force(self) -> tuple[Options, Scheduler | None]:
        """The options of a call made here, and the schedule that was given to `use`."""
        return self._state.options.here(), self._state.schedule

    # -- inspection of what runs on a GPU
    def inspect_cuda(self, *args: Any, **kwargs: Any) -> str:
        """The CUDA C of the GPU kernels, as passed to NVRTC."""
        from hjit.kernels.cuda.runtime import inspection

        return "\n".join(map(inspection.cuda, self._device_kernels(args, kwargs)))

    def inspect_ptx(self, *args: Any, capability: int | None = None, **kwargs: Any) -> str:
        """The PTX of the GPU kernels.

        Args:
            capability: compute capability, 90 for 9.0; None: the device's, or 80 if there is no device.

        Raises:
            DeviceError: there is no NVRTC.
        """
        from hjit.kernels.cuda.runtime import inspection

        return "\n".join(inspection.compiled(b, capability).ptx for b in self._device_kernels(args, kwargs))

    def inspect_sass(self, *args: Any, capability: int | None = None, **kwargs: Any) -> str:
        """The machine code of the GPU kernels, as printed by nvdisasm; see `inspect_ptx`.

        Raises:
            DeviceError: there is no NVRTC, or no disassembler.
        """
        from hjit.kernels.cuda.runtime import inspection

        return "\n".join(inspection.sass(b, capability) for b in self._device_kernels(args, kwargs))

    def kernels(self, *args: Any, capability: int | None = None, **kwargs: Any) -> Any:
        """A printable table of the GPU kernels: grid, block, registers, spills and shared memory of each.

        It has a line for each operation between kernels: FFTs and products by GPU libraries, decisions, and calls on
        the host.

        Args:
            capability: see `inspect_ptx`.
        """
        from hjit.kernels.cuda.runtime import inspection

        body = self._on_device(args, kwargs).body
        rows: list[Any] = []
        between: list[tuple[int, str]] = []
        for number, segment in enumerate(body.segments):
            rows += [] if segment.bound is None else inspection.rows(segment.bound, capability)  # type: ignore[arg-type]
            if segment.graph_break is not None:
                between.append((len(rows), body.describe_break(number)))
        return inspection.Table(rows, inspection.capability() if capability is None else capability, between)

    def _device_kernels(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The kernels of these arguments on a GPU, bound to their sizes."""
        return self._on_device(args, kwargs).bounds

    def _on_device(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Variant:
        """What a call with these arguments runs on a GPU."""
        here = self if self._state.options.here().target == "cuda" else self.on("cuda")
        return here.variant_of(args, kwargs, here._state.options.here(), here._state.schedule)

    def _on_cpu(self) -> Self:
        return self.on("cpu") if self._state.options.here().target == "cuda" else self
