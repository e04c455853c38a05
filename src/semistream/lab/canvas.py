"""What figures are drawn on: Matplotlib's classes, which are imported only when one is drawn.

So the figures can be listed where Matplotlib is not installed.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from semistream.extras import needs_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
else:
    Axes: TypeAlias = Any
    Canvas: TypeAlias = Any

__all__ = ["Axes", "Canvas", "new_canvas"]


def new_canvas(name: str, size: tuple[float, float]) -> Canvas:
    """Return an empty canvas, its size in inches; files of one name have the same identifiers."""
    with needs_extra("lab", "the lab"):
        import matplotlib as mpl
        from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = name
    return Figure(figsize=size, layout="constrained")
