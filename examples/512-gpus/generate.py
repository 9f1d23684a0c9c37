"""Writes cluster.toml and jobs.toml: 1,000 jobs, half training and half offline inference, for 512 GPUs.

Plain Python 3 with a fixed seed: the files are the same each time. `python3 generate.py` beside models/bundled.
"""

import json
import random
from pathlib import Path

here = Path(__file__).parent
profiles = json.loads((here / "../../models/bundled/simulated-h100-a100.profiles.json").read_text())["profiles"]
known = {kind: sorted({p["workload"] for p in profiles if p["kind"] == kind}) for kind in ("training", "inference")}
speed = {p["workload"]: 1 / p["fields"]["step_seconds"] for p in profiles if p["device"] == "h100"}
rng = random.Random(5)

cluster = "# 64 nodes of 8 GPUs. Amounts are those of one node.\n"
for pool, device, price, cores in (("h100", "h100", 2.5, 112), ("a100", "a100-40gb", 1.1, 96)):
    cluster += f"""
[[pool]]
id = "{pool}"
device = "{device}"
nodes = 32
gpus_per_node = 8
host_cores = {cores}
host_memory_bytes = 2e12
price_per_gpu_hour = {price}
"""
(here / "cluster.toml").write_text(cluster)

jobs = "# 500 training and 500 offline inference jobs of four tenants. Workloads are those of the shipped model.\n"
for index in range(1000):
    kind = "training" if index % 2 == 0 else "inference"
    workload = rng.choice(known[kind])
    # Philly's jobs: 70 % ask for one GPU; durations from five minutes to six hours, evenly on a logarithmic scale.
    most = rng.choices((1, 2, 4, 8, 16), (50, 20, 15, 10, 5))[0] if kind == "training" else 1
    hours = 72 ** rng.random() / 12
    jobs += f"""
[[job]]
id = "{kind}-{index:04}"
workload = "{workload}"
tenant = "{rng.choice(("search", "ads", "research", "maps"))}"
weight = {rng.choice((0.5, 1.0, 1.0, 2.0))}
work_steps = {round(hours * 3600 * speed[workload])}
host_cores = {rng.choice((2, 4, 8)) if kind == "training" else 2}
host_memory_bytes = {rng.choice((16, 32, 64))}e9
"""
    if most > 1:
        jobs += f"gpus_max = {most}\n"
(here / "jobs.toml").write_text(jobs)
