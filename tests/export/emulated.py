"""A C program for other processors that calls exported functions, run under an emulator."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CROSS = shutil.which("aarch64-linux-gnu-gcc")
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

_COMMON = """
#include <stdio.h>
#include <stdlib.h>

static hjit_array taken(FILE *file, size_t itemsize, int32_t ndim, const int64_t *shape) {
  hjit_array a = hjit_dense(NULL, itemsize, ndim, shape);
  size_t n = (size_t)hjit_elements(&a);
  a.data = malloc(n * itemsize + 1);
  if (!a.data || fread(a.data, itemsize, n, file) != n) exit(3);
  return a;
}

static void put(FILE *file, size_t itemsize, const hjit_array *a, int32_t axis, const char *at) {
  if (axis == a->ndim) fwrite(at, itemsize, 1, file);
  else
    for (int64_t k = 0; k < a->shape[axis]; k++) put(file, itemsize, a, axis + 1, at + k * a->strides[axis]);
}

static const hjit_context context = {.threads = 2};
"""


@dataclass(frozen=True, slots=True)
class Call:
    """An exported function, its arguments, and the dtypes of its results."""

    name: str
    args: Sequence[Any]
    results: Sequence[np.dtype[Any]]

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]]:
        return [x for x in self.args if isinstance(x, np.ndarray)]

    def in_c(self) -> str:
        """A function that reads the arrays, and writes the results, and the arrays as they are then."""
        arrays, text = self.arrays, []
        for k, a in enumerate(arrays):
            shape = ", ".join(map(str, a.shape))
            text.append(f"  hjit_array a{k} = taken(in, {a.itemsize}, {a.ndim}, (const int64_t[]){{{shape}}});")
        results = [f"r{k}" for k in range(len(self.results))]
        numbers = iter(range(len(arrays)))
        given = [f"&a{next(numbers)}" if isinstance(x, np.ndarray) else _number(x) for x in self.args]
        out = [f"&{r}" for r in results]
        text.append(f"  hjit_array {', '.join(results)};")
        text.append(f"  int status = {self.name}_shape({', '.join([*(f'&a{k}' for k in range(len(arrays))), *out])});")
        text.append("  if (status) return status;")
        for r, dtype in zip(results, self.results, strict=True):
            text.append(f"  {r}.data = malloc((size_t)hjit_elements(&{r}) * {dtype.itemsize} + 1);")
        text.append(f"  status = {self.name}({', '.join([*given, *out, '&context'])});")
        kinds = [*zip(results, self.results, strict=True), *((f"a{k}", a.dtype) for k, a in enumerate(arrays))]
        text += [f"  put(out, {dtype.itemsize}, &{name}, 0, {name}.data);" for name, dtype in kinds]
        head = f'  FILE *in = fopen("{self.name}.in", "rb"), *out = fopen("{self.name}.out", "wb");'
        body = "\n".join([head, *text, "  return fclose(out) ? 1 : status;"])
        return f"static int run_{self.name}(void) {{\n{body}\n}}\n"


def _number(x: Any) -> str:
    return f"{float(x)!r}f" if isinstance(x, np.float32) else repr(x)


def run(folder: Path, calls: Sequence[Call]) -> None:
    """Compile and run a program with all of them, whose objects, C code and headers are in the folder.

    Raises:
        subprocess.CalledProcessError: it is refused, or one of them returns another status than 0.
    """
    includes = "".join(f'#include "{c.name}.h"\n' for c in calls)
    functions = "\n".join(c.in_c() for c in calls)
    lines = [f'  if ((status = run_{c.name}())) return fprintf(stderr, "{c.name}: %d\\n", status), 1;' for c in calls]
    body = "\n".join(["int main(void) {", "  int status;", *lines, "  return 0;", "}", ""])
    (folder / "main.c").write_text("\n".join([includes, _COMMON, functions, body]))
    for c in calls:
        (folder / f"{c.name}.in").write_bytes(b"".join(np.ascontiguousarray(a).tobytes() for a in c.arrays))
    files = ["main.c", *(f"{c.name}.{suffix}" for c in calls for suffix in "co")]
    command = [str(CROSS), "-std=c11", "-O1", "-static", "-I.", *files, "-o", "main", "-lm", "-pthread"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run([str(QEMU), "./main"], cwd=folder, check=True)


def written(folder: Path, name: str, like: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """What a call has written: arrays of the shapes and dtypes of these."""
    data, found = (folder / f"{name}.out").read_bytes(), []
    for x in like:
        part, data = data[: x.nbytes], data[x.nbytes :]
        found.append(np.frombuffer(part, x.dtype).reshape(x.shape))
    assert not data
    return found
