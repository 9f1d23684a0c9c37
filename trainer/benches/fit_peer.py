"""The peer of fit.rs: scikit-learn's extra trees and LightGBM on the same prepared rows with all cores.

The folder holds x.f32 (training rows), y.f64 (their log slowdown), test_x.f32, test_y.f64 and settings.json. For each line
on standard input, the name of a learner, it fits and prints wall seconds, CPU seconds and the mean absolute error of the log
slowdown on the test rows.
"""

import json
import os
import sys
import time
from pathlib import Path

import lightgbm
import numpy as np
import sklearn
from sklearn.ensemble import ExtraTreesRegressor


def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    x, test_x = (np.fromfile(folder / name, "<f4").reshape(-1, settings["width"]) for name in ("x.f32", "test_x.f32"))
    y, test_y = (np.fromfile(folder / name, "<f8") for name in ("y.f64", "test_y.f64"))
    forest, boosting = settings["extra_trees"], settings["boosting"]

    def learner(name: str, seed: int):
        if name == "extra_trees":
            return ExtraTreesRegressor(
                n_estimators=forest["trees"],
                max_features=forest["features_ratio"],
                min_samples_leaf=forest["min_leaf"],
                n_jobs=-1,
                random_state=seed,
            )
        return lightgbm.LGBMRegressor(
            n_estimators=boosting["rounds"],
            num_leaves=boosting["leaves"],
            learning_rate=boosting["learning_rate"],
            min_child_samples=int(boosting["min_leaf"]),
            reg_lambda=boosting["l2"],
            max_bin=boosting["bins"] - 1,
            n_jobs=os.cpu_count(),
            random_state=seed,
            verbose=-1,
        )

    print(f"scikit-learn {sklearn.__version__}, LightGBM {lightgbm.__version__}", flush=True)
    for seed, line in enumerate(sys.stdin):
        model = learner(line.strip(), seed)
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(x, y)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(wall, cpu, np.abs(model.predict(test_x) - test_y).mean(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
