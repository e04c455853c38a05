"""The symbols of the papers' cost models, in one table.

==================  ==============================================  ======================
field               symbol                                          unit
==================  ==============================================  ======================
`stream_bytes`      v_S: a stream tuple                             bytes
`row_bytes`         v_R: a tuple of R                               bytes
`page_bytes`        v_P: a page of R                                bytes
`page_count`        N_R: pages of R                                 pages
`fudge`             f: memory of a hash table over its tuples'     factor
`pointer_bytes`     sizeof(ptr): an entry of Q                      bytes
`selectivity`       σ: results per tuple of R                       results
`io_s`              c_I/O(b): reading b pages                       seconds
`expire_s`          c_E: removing a tuple from H and Q              seconds
`read_s`            c_S: a tuple from the stream buffer             seconds
`append_s`          c_A: adding a tuple to H and Q                  seconds
`probe_s`           c_H: probing H with a tuple of R                seconds
`output_s`          c_O: creating a result tuple                    seconds
(argument) `w`      w: stream tuples per loop                       tuples
(argument) `b`      b, k: pages in the (swappable) disk buffer      pages
(argument) `l`      l: pages in the non-swappable part              pages
(argument) `h_s`    h_S, H_t: stream tuples in the hash table       tuples
(argument) `h_r`    h_R: tuples of R in the front stage             tuples
(argument) `rate`   λ, or the μ that is to be reached               tuples per second
(argument) `memory` M                                               bytes
==================  ==============================================  ======================
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symbols:
    """The physical properties and cost factors that the papers' equations are about.

    The default sizes are those of the experiments in `meshjoin.txt` and
    `meshjoin-default-settings.txt`.
    """

    page_count: float
    io_s: Callable[[float], float]
    stream_bytes: float = 20.0
    row_bytes: float = 120.0
    page_bytes: float = 8192.0
    fudge: float = 4.8
    pointer_bytes: float = 4.0
    selectivity: float = 1.0
    expire_s: float = 0.0
    read_s: float = 0.0
    append_s: float = 0.0
    probe_s: float = 0.0
    output_s: float = 0.0

    @property
    def rows_per_page(self) -> float:
        """v_P / v_R."""
        return self.page_bytes / self.row_bytes

    @property
    def row_count(self) -> float:
        """R_t = N_R · v_P / v_R."""
        return self.page_count * self.rows_per_page
