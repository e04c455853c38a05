"""All figures of the lab, in the order of the papers."""

from semistream.lab import beyond, cmeshjoin, default_settings, hybridjoin, meshjoin, xhybridjoin
from semistream.lab.figures import by_name

FIGURES = by_name(
    [
        *meshjoin.FIGURES,
        *default_settings.FIGURES,
        *hybridjoin.FIGURES,
        *xhybridjoin.FIGURES,
        *cmeshjoin.FIGURES,
        *beyond.FIGURES,
    ]
)
