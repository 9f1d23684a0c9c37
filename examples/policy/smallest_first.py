"""A policy outside ElastiCo: among the waiting jobs the one with the fewest GPUs first."""
import json
import sys

for line in sys.stdin:
    state = json.loads(line)
    free = {pool["pool"]: pool["free_gpus"] for pool in state["pools"]}
    targets = []
    waiting = [job for job in state["jobs"] if job["state"] == "waiting"]
    for job in sorted(waiting, key=lambda job: (job["gpus"], job["submit_seconds"])):
        # Shapes that the planner knows; the fastest that is free, on as many GPUs as asked for.
        shapes = [shape for shape in job["shapes"] if shape["gpus"] == job["gpus"] <= free[shape["pool"]]]
        if shapes:
            best = max(shapes, key=lambda shape: shape["rate"])
            free[best["pool"]] -= best["gpus"]
            targets.append({"job": job["job"], "do": "alone", "pool": best["pool"], "gpus": best["gpus"]})
    print(json.dumps({"schema": "elastico.policy-actions/1", "targets": targets}), flush=True)
