"""Type checkers see the signature of the plain function through `pipeline`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

IMAGE = "numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.floating[numpy._typing._nbit_base._32Bit]]]"
PLAIN = f"[[img: {IMAGE}, radius: int =, *, scale: float =], {IMAGE}]"

SOURCE = """
import numpy as np
import numpy.typing as npt
import hjit

Image = npt.NDArray[np.float32]

@hjit.pipeline
def blur(img: Image, radius: int = 1, *, scale: float = 1.0) -> Image:
    return img

@hjit.pipeline(tune=False, verify="off")
def moments(a: Image, b: Image) -> tuple[Image, int]:
    return a + b, 1

class Filters:
    gain = 2.0

    @hjit.pipeline
    def amplify(self, img: Image) -> Image:
        return img * np.float32(self.gain)

    @hjit.pipeline
    @staticmethod
    def double(img: Image) -> Image:
        return img * 2

img: Image = np.zeros((4, 4), np.float32)
"""

REVEALED = {
    "blur": f"hjit.pipeline.Pipeline{PLAIN}",
    'blur.on("cuda")': f"hjit.pipeline.Pipeline{PLAIN}",
    "blur.use(None)": f"hjit.pipeline.Pipeline{PLAIN}",
    "blur(img, 2, scale=0.5)": IMAGE,
    "blur.into(img, img, radius=3)": IMAGE,
    "moments(img, b=img)": f"tuple[{IMAGE}, int]",
    "Filters().amplify(img)": IMAGE,
    "Filters.double(img)": IMAGE,
    "hjit.pipeline(blur.py_func)": f"hjit.pipeline.Pipeline{PLAIN}",
    "blur.stats.calls": "int",
}
REFUSED = {
    'blur("no")': "arg-type",
    "blur(img, radius=1.5)": "arg-type",
    "blur(img, 1, 2.0)": "call-arg",
    "blur()": "call-arg",
    "moments(img)": "call-arg",
    "blur.into(img, img, 'no')": "arg-type",
    "Filters().amplify(3)": "arg-type",
    "blur.no_such_method": "attr-defined",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """What mypy says of each line of the source, and of the expressions after it."""
    folder = tmp_path_factory.mktemp("types")
    file = folder / "user.py"
    file.write_text(SOURCE + "".join(f"reveal_type({x})\n" for x in REVEALED) + "".join(f"{x}\n" for x in REFUSED))
    options = ["--config-file=", "--strict", "--show-error-codes", "--no-pretty", f"--cache-dir={folder / 'cache'}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(Path(__file__).parent.parent))
        said, wrong, _ = api.run([*options, "--follow-imports=silent", str(file)])
    assert not wrong, wrong
    found: dict[int, list[str]] = {}
    for line in said.splitlines():
        if (place := re.match(r".*user\.py:(\d+): (.*)", line)) is not None:
            found.setdefault(int(place[1]), []).append(place[2])
    return found


FIRST = SOURCE.count("\n") + 1


def test_a_decorated_source_is_well_typed(checked: dict[int, list[str]]) -> None:
    assert not [text for line, text in checked.items() if line < FIRST]


@pytest.mark.parametrize(("number", "expression"), [*enumerate(REVEALED)], ids=list(REVEALED))
def test_types_are_those_of_the_plain_function(number: int, expression: str, checked: dict[int, list[str]]) -> None:
    assert checked[FIRST + number] == [f'note: Revealed type is "{REVEALED[expression]}"']


@pytest.mark.parametrize(("number", "expression"), [*enumerate(REFUSED)], ids=list(REFUSED))
def test_wrong_calls_are_refused(number: int, expression: str, checked: dict[int, list[str]]) -> None:
    said = checked[FIRST + len(REVEALED) + number]
    assert any(text.startswith("error") and text.endswith(f"[{REFUSED[expression]}]") for text in said), said
