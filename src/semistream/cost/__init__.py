"""The papers' cost models: equations, one file per algorithm. Imports nothing from `joins`.

The papers' symbols, and the fields that stand for them. Elsewhere only the fields' names are used.

========  ================================  ====================================================
symbol    field                             meaning
========  ================================  ====================================================
λ         `waiting_s(arrival_rate)`         arrivals per second
μ         `Prediction.rate`                 service rate, tuples per second
w         `Prediction.tuples_per_loop`      tuples that a loop serves
b         `Settings.pages_per_read`         pages of the disk buffer
c_loop    `Prediction.loop_s`               seconds of a loop
c_I/O(b)  `Conditions.io`                   reading b pages, `CostFactors.io` for one request
c_S       `StepCosts.read_s`                a tuple from the stream buffer, its key coded
c_A       `StepCosts.append_s`              a tuple into the window
c_E       `StepCosts.expire_s`              a tuple out of the window
c_H       `StepCosts.probe_s`               probing with one row (scan) or one tuple (index)
c_O       `StepCosts.output_s`              creating a result tuple
c_R       `StepCosts.repeat_s`              (ours) more for a tuple whose key another one has
c_0       `StepCosts.loop_s`, `.entry_s`    (ours) fixed costs of a loop and of an entry
IO_s      `Prediction.pages_per_tuple`      pages read per tuple
IO_t      `Prediction.pages_per_second`     pages read per second
σ         `Conditions.match_share`          share of the tuples that find a match
p_N       `Prediction.hit_ratio`            share of the stream that never has to wait
N_R       `Layout.page_count`               pages of R
R_t       `Layout.row_count`                rows of R
v_P       `code_bytes` + `part_bytes`       size of a page
v_P/v_R   `Layout.rows_per_page`            rows of a page
h_S       `Settings.places`                 tuples that can wait
h_R       `cached_rows`                     rows of the front stage
l         `Settings.pinned_pages`           pages that X-HYBRIDJOIN keeps in memory
M         `budget_bytes`                    the memory budget
========  ================================  ====================================================
"""
