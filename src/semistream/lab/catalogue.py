"""All figures of the lab, in the order of the papers."""

from semistream.lab import default_settings, hybridjoin, meshjoin
from semistream.lab.figures import by_name

FIGURES = by_name([*meshjoin.FIGURES, *default_settings.FIGURES, *hybridjoin.FIGURES])
