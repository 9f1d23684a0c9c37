"""The peer of predict.rs: the same file and pairs through Python's onnxruntime.

The folder holds model.onnx, profiles.json, pairs.u32 (subject, co-runner and sharing mode of each pair) and sharing.json (name
and both shares of each mode). For each line on standard input it builds the rows from the profiles, predicts them with all
cores and prints how many seconds both took, on the clock and of the processors; before the first it writes its outputs to
peer.f32.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime


def field(profile: dict, name: str) -> float:
    if name == "training_ratio":
        return float(profile["kind"] == "training")
    return profile["fields"].get(name, np.nan)


def side_values(profiles: list, names: list, side: str, share: float) -> np.ndarray:
    own = [name.removeprefix(side) for name in names if name.startswith(side)]
    values = [[share if name == "share_ratio" else field(p, name) for name in own] for p in profiles]
    return np.array(values, np.float32)


def main(folder: Path) -> None:
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    metadata = json.loads(session.get_modelmeta().custom_metadata_map["elastico.metadata"])
    names = [feature["name"] for feature in metadata["features"]]
    profiles = json.loads((folder / "profiles.json").read_text())["profiles"]
    sharing = json.loads((folder / "sharing.json").read_text())
    subject, co_runner, mode = np.fromfile(folder / "pairs.u32", "<u4").reshape(-1, 3).T
    columns = {
        side: np.array([i for i, name in enumerate(names) if name.startswith(side)])
        for side in ("subject_", "co_runner_")
    }
    constants = metadata["device_constants"][profiles[0]["device"]]

    def rows() -> np.ndarray:
        out = np.empty((len(subject), len(names)), np.float32)
        for side, index, place in (("subject_", subject, "subject"), ("co_runner_", co_runner, "co_runner")):
            # Values of each workload under each mode, looked up once: [modes, workloads, fields].
            table = np.stack([side_values(profiles, names, side, each[place]) for each in sharing])
            span = columns[side]
            out[:, span[0] : span[-1] + 1] = table[mode, index]
        for i, name in enumerate(names):
            if name.startswith("device_"):
                out[:, i] = constants[name]
            elif name.startswith("sharing_"):
                one = [float(name == f"sharing_{each['name']}_ratio") for each in sharing]
                out[:, i] = np.array(one, np.float32)[mode]
        return out

    def predict() -> list:
        return session.run(["slowdown", "slowdown_upper", "in_domain"], {"features": rows()})

    np.concatenate(predict(), axis=1).tofile(folder / "peer.f32")
    print(onnxruntime.__version__, flush=True)
    for _ in sys.stdin:
        start, used = time.perf_counter(), time.process_time()
        predict()
        print(time.perf_counter() - start, time.process_time() - used, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
