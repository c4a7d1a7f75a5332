"""Rates against packet sizes as a picture, as in Groute's figure 2; needs Matplotlib."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from godwit.cli.device_tables import NAMES
from godwit.config import readable_bytes
from godwit.errors import InputError
from godwit.files import check_writable, replacing

if TYPE_CHECKING:
    from godwit.runtime.cuda.measurements import Measurements, What

ENDINGS = (".svg", ".png")


class Plot:
    """A picture in a file, complete or not there at all.

    :raises InputError: the file's ending is none of ours, or Matplotlib is not installed
    :raises FileError: the file cannot be written; found out by writing a temporary one
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._form = Path(target).suffix.lower()
        if self._form not in ENDINGS:
            raise InputError(f"--plot must end in {' or '.join(ENDINGS)}; got {target!r}")
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise InputError(
                f"--plot needs Matplotlib, which cannot be imported ({error}); "
                'pip install ".[plot]"'
            ) from error
        self._figure: Any = Figure
        check_writable(target)

    def write(self, found: Measurements) -> None:
        """Draw what was measured.

        :raises FileError: it did not work; what was there before is there still
        """
        from godwit.runtime.cuda.measurements import BROADCASTS, POINT_TO_POINT

        whats = [POINT_TO_POINT, *([BROADCASTS] if found.of(*BROADCASTS) else [])]
        figure = self._figure(figsize=(6.4 * len(whats), 4.8), layout="constrained")
        titles = ["One GPU to another", "One GPU to all others"]
        for place, which in enumerate(whats):
            axes = figure.add_subplot(1, len(whats), place + 1)
            _draw(axes, titles[place], found, which)
        form, image = self._form[1:], io.BytesIO()
        figure.savefig(image, format=form, dpi=150)
        with replacing(self.target) as file:
            file.write(image.getvalue())


def _draw(axes: Any, title: str, found: Measurements, whats: tuple[What, ...]) -> None:
    curves = found.curves(whats)
    for (source, destination, what), curve in curves.items():
        sizes = sorted(curve)
        label = f"{NAMES[what]}, {source} to {destination}"
        axes.plot(sizes, [curve[size] for size in sizes], marker="o", label=label)
    sizes = sorted({size for curve in curves.values() for size in curve})
    axes.set_xscale("log", base=2)
    axes.set_xticks(
        sizes, [readable_bytes(size).replace(".0 ", " ") for size in sizes], rotation=45
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"packet size (message of {readable_bytes(found.message_bytes)})")
    axes.set_ylabel("GB/s")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
