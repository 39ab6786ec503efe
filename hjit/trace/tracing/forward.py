"""Forward declarations: functions of higher modules that the modules below them call.

Tracers sit below the operations on them (`hjit.trace.ops`) and below the code that clones functions
(`hjit.trace.capture`), so they cannot import either. Those modules define the functions that are declared here and
mark them with `provides`; callers write ``forward.getitem(a, key)``. Traced values are of type `Any` here, since their
classes are defined above this module, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType, FunctionType, ModuleType
from typing import Any, Protocol, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
UfuncMethod = Callable[[np.ufunc, str, tuple[Any, ...], dict[str, Any]], Any]  # the arguments of `__array_ufunc__`


class WarningsBlock(AbstractContextManager[None], Protocol):
    """A `with` block that collects warnings."""

    noted: list[Any]


# -- the running trace
running_trace: Callable[[], Any]
traced_line: Callable[[], Any]
calling_line: Callable[[], Any]
notice_call: Callable[[FrameType], None]
warn: Callable[..., None]
NotedWarnings: Callable[[], WarningsBlock]
asks_for_numbers: Callable[[FrameType | None], Exception]

# -- functions, classes and modules as traced code sees them
clone: Callable[[FunctionType | Any], Callable[..., Any]]
wrap_callable: Callable[[Any], Any]
function_of: Callable[[Any], Any]
module_proxy: Callable[[ModuleType | Any], Any]
class_seen: Callable[[Any], Any]
dtype_seen: Callable[[np.dtype[Any]], Any]
dtype_of_type: Callable[[np.dtype[Any], FrameType], Any]
vectorized: Callable[[Any], Any]
outcome_assumed: Callable[[FrameType, Any], bool | None]
check_output: Callable[[type], None]
guard_writeable: Callable[[str, bool], None]
object_call: Callable[[Any, Any, Any, Any], Any]

# -- numbers
as_number: Callable[[Any], Any]
whole_size: Callable[[Any], int]
index_value: Callable[[Any], Any]
list_of: Callable[[Any], Any]

# -- calls of NumPy on traced values
numpy_call: Callable[[Any, Any, Any], Any]
ufunc_call: UfuncMethod
ufunc_of_sizes: UfuncMethod
ufunc_method: UfuncMethod
ufunc_at: Callable[..., None]

# -- methods and attributes of traced arrays
getitem: Callable[[Any, Any], Any]
setitem: Callable[[Any, Any, Any], None]
write: Callable[..., None]
iterated: Callable[[Any, FrameType], Iterator[Any]]
astype: Callable[[Any, Any, Any, bool, str], Any]
reinterpreted: Callable[[Any, np.dtype[Any]], Any]
reshape_in_place: Callable[[Any, Any], None]
flat: Callable[[Any], Any]
flags: Callable[[Any], Any]
strides: Callable[[Any], tuple[int, ...] | None]
interface: Callable[[Any], dict[str, Any]]
check_nesting: Callable[..., None]
check_item: Callable[[Any, np.dtype[Any]], None]
shares_elements: Callable[[Any], bool]
repeated: Callable[[Any, Any, Callable[[], None]], None]
copy_order: Callable[[Any], Any]

# -- reads under a mask
masked_call: Callable[[Any, Any, Any], Any]
masked_item: Callable[[Any, Any], Any]
knows_masked: Callable[[Any], bool]
item_by_reads: Callable[[Any, Any], Any]
assign_by_reads: Callable[[Any, Any, Any], bool]
compacted: Callable[[Any], Any]
places_of: Callable[[Any], Any]
whole_operands: Callable[[Any, Any, Any], tuple[Any, Any, Any] | None]
counted_of_read: Callable[[Any, Any, Any, dict[str, Any]], Any]
unique_of_read: Callable[..., Any]

# -- complex arrays
wants_complex: Callable[[Any, Any, Any], bool]
complex_call: Callable[[Any, Any, Any], Any]
complex_operands: Callable[[tuple[Any, ...], dict[str, Any]], bool]
complex_ufunc: Callable[[np.ufunc, tuple[Any, ...], dict[str, Any]], Any]
complex_method: UfuncMethod
complex_getitem: Callable[[Any, Any], Any]
complex_setitem: Callable[[Any, Any, Any], None]
complex_flags: Callable[[Any], Any]
complex_reshape_in_place: Callable[[Any, Any], None]
complex_truth: Callable[[Any], Any]
real_as_complex: Callable[[Any, Any, Any, bool, str], Any]
paired: Callable[[Any, np.dtype[Any]], Any]


def provides(function: Function) -> Function:
    """Define the declared function of this name."""
    name = function.__name__
    if name not in __annotations__:
        raise NameError(f"{function.__module__}.{name} is not declared in {__name__}")
    globals()[name] = function
    return function
