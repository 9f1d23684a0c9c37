"""Checks one exported model with onnx and onnxruntime.

The folder holds model.onnx, rows.f32 (row-major features) and expected.f32 (slowdown, slowdown_upper, in_domain per row),
both little-endian float32. Exits with 1 and a reason where the file is unsound or a number is off.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

TOLERANCE = 1e-5


def main(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    features = json.loads(metadata["elastico.metadata"])["features"]

    rows = np.fromfile(folder / "rows.f32", "<f4").reshape(-1, len(features))
    expected = np.fromfile(folder / "expected.f32", "<f4").reshape(-1, 3)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(["slowdown", "slowdown_upper", "in_domain"], {"features": rows})
    for output in outputs:
        if output.shape != (len(rows), 1) or output.dtype != np.float32:
            sys.exit(f"an output is {output.dtype} {output.shape}")
    found = np.concatenate(outputs, axis=1)
    difference = np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1e-30) * (expected != found))
    if not difference <= TOLERANCE:
        sys.exit(f"the largest relative difference is {difference}")
    print(f"{len(rows)} rows, largest relative difference {difference:.1e}, onnxruntime {onnxruntime.__version__}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
