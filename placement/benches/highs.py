"""The linear relaxation of a shape instance by HiGHS: `python highs.py INSTANCE.csv`.

Lines `pool,capacity` first, then an empty line, then `job,pool,gpus,value`. Prints the seconds of the solve and the optimum.
Needs `pip install highspy numpy`; for the bench alone.
"""

import sys
import time

import highspy
import numpy as np

capacities, columns = [], []
with open(sys.argv[1], encoding="utf-8") as file:
    head, body = file.read().split("\n\n")
capacities = [float(line.split(",")[1]) for line in head.splitlines()]
columns = np.array([[float(cell) for cell in line.split(",")] for line in body.splitlines()])
jobs = int(columns[:, 0].max()) + 1
count = len(columns)

lp = highspy.HighsLp()
lp.num_col_, lp.num_row_ = count, jobs + len(capacities)
lp.col_cost_ = columns[:, 3]
lp.sense_ = highspy.ObjSense.kMaximize
lp.col_lower_, lp.col_upper_ = np.zeros(count), np.ones(count)
lp.row_lower_ = np.full(lp.num_row_, -highspy.kHighsInf)
lp.row_upper_ = np.concatenate([np.ones(jobs), capacities])
lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
lp.a_matrix_.start_ = np.arange(0, 2 * count + 1, 2)
lp.a_matrix_.index_ = np.column_stack([columns[:, 0], jobs + columns[:, 1]]).astype(np.int32).ravel()
lp.a_matrix_.value_ = np.column_stack([np.ones(count), columns[:, 2]]).ravel()

solver = highspy.Highs()
solver.setOptionValue("output_flag", False)
solver.passModel(lp)
begin = time.perf_counter()
solver.run()
seconds = time.perf_counter() - begin
print(f"{seconds} {solver.getInfo().objective_function_value}")
