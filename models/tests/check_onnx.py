"""Checks exported models with onnx and onnxruntime.

Each folder holds model.onnx, rows.f32 (row-major features) and expected.f32 (slowdown, slowdown_upper, in_domain per row; NaN =
either will do), both little-endian float32. Exits with 1 and a reason where a file is unsound or a number is off.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

TOLERANCE = 1e-6


def check(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    features = json.loads(metadata["elastico.metadata"])["features"]

    rows = np.fromfile(folder / "rows.f32", "<f4").reshape(-1, len(features))
    expected = np.fromfile(folder / "expected.f32", "<f4").reshape(-1, 3)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 2  # a file that onnxruntime warns of is not clean
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    outputs = session.run(["slowdown", "slowdown_upper", "in_domain"], {"features": rows})
    for output in outputs:
        if output.shape != (len(rows), 1) or output.dtype != np.float32:
            sys.exit(f"{folder.name}: an output is {output.dtype} {output.shape}")
    found = np.concatenate(outputs, axis=1)
    if not np.isfinite(found).all():
        sys.exit(f"{folder.name}: an output is not finite")
    difference = np.abs(found - expected) / np.maximum(np.abs(expected), 1e-30)
    worst = np.nanmax(difference)
    if not worst <= TOLERANCE:
        row, column = np.argwhere(difference == worst)[0]
        sys.exit(f"{folder.name}: row {row}, output {column}: {found[row]} against {expected[row]}, {worst:.1e} apart")
    print(f"{folder.name}: {len(rows)} rows, largest relative difference {worst:.1e}, onnxruntime {onnxruntime.__version__}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        check(Path(argument))
