"""How the papers' claims are judged, one module per paper: pure functions of a figure's table."""
