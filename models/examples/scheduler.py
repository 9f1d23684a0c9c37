"""A scheduler in one function: which workload should run beside this one?

    python scheduler.py model.onnx profiles.json h100 mps 0.5 0.5 tr_mlp.b64_h512_bf16

The model file says which features it reads and, for each device, the constants among them; profiles.json is what
`elastico dataset export --table profiles` writes. Nothing else of ElastiCo is needed, only onnxruntime.
"""

import json
import math
import sys

import onnxruntime


def choose(model, profiles, device, mode, shares, subject):
    """The co-runner that slows the subject down least by the safe bound, among those that the model can judge."""
    session = onnxruntime.InferenceSession(model)
    metadata = json.loads(session.get_modelmeta().custom_metadata_map["elastico.metadata"])
    if device not in metadata["devices"] or mode not in metadata["sharing_modes"]:  # a model does not transfer
        return None
    constants = metadata["device_constants"].get(device, {})
    known = {p["workload"]: p for p in json.load(open(profiles))["profiles"] if p["device"] == device}

    def value(name, pair):
        for side, profile, share in zip(("subject_", "co_runner_"), pair, shares):
            if name.startswith(side):
                field = name.removeprefix(side)
                if "=" in field:
                    kind, wanted = field.split("=", 1)
                    return float(profile[kind].lower() == wanted.lower())
                own = {"share_ratio": share, "training_ratio": float(profile["kind"] == "training")}
                return {**own, **profile["fields"]}.get(field, math.nan)
        return float(name == f"sharing_{mode}_ratio") if name.startswith("sharing_") else constants.get(name, math.nan)

    others = sorted(name for name in known if name != subject)
    names = [feature["name"] for feature in metadata["features"]]
    rows = [[value(name, (known[subject], known[other])) for name in names] for other in others]
    _, upper, in_domain = session.run(["slowdown", "slowdown_upper", "in_domain"], {"features": rows})
    safe = [(float(u[0]), other) for u, inside, other in zip(upper, in_domain, others) if inside[0] == 1]
    return min(safe, default=None)


if __name__ == "__main__":
    model, profiles, device, mode, own_share, other_share, subject = sys.argv[1:]
    choice = choose(model, profiles, device, mode, (float(own_share), float(other_share)), subject)
    print("run it alone" if choice is None else f"{choice[1]} {choice[0]:.4f}")
