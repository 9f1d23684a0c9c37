//! The words of the page, for a reader who has not met them.

/// Word and meaning, in the order of reading.
pub(crate) const WORDS: &[(&str, &str)] = &[
    (
        "subject, co-runner",
        "The two sides of a pair that shares one GPU. Each pair yields two numbers, one for each side as the subject.",
    ),
    ("isolated", "Running alone on the device, at a stated share of its multiprocessors."),
    ("step", "One unit of progress: a training iteration, an inference batch or a decode step."),
    (
        "slowdown",
        "Co-located time per step over isolated time per step at the full device. 1.00 is no harm, 2.00 is half the speed; a little under 1 is noise.",
    ),
    (
        "partition effect",
        "The part of the slowdown that comes from having a share of the device only: isolated at the share over isolated at the full device.",
    ),
    (
        "interference",
        "The part of the slowdown that comes from the other: co-located over isolated at the same share.",
    ),
    ("normalized throughput", "1 / slowdown: the share of its isolated speed that a job keeps."),
    (
        "STP",
        "System throughput: the sum of the normalized throughputs on one GPU. Above 1, sharing does more work than taking turns (Eyerman and Eeckhout 2008).",
    ),
    ("ANTT", "Average normalized turnaround time: the mean slowdown (Eyerman and Eeckhout 2008)."),
    (
        "sharing mode",
        "How a GPU is shared: time_slice (the driver alternates), mps (processes side by side, each with a share), mig (a fixed partition), streams (one process), exclusive (no sharing).",
    ),
    ("shape", "One feasible configuration of a job: GPUs, batch, share, and what it reaches with them."),
    (
        "price",
        "The shadow price of one resource: what one more unit would add to the total value. Zero means there is plenty.",
    ),
    (
        "upper bound",
        "A one-sided conformal bound: at the stated level, that share of true slowdowns lies below it, for workloads like those trained on.",
    ),
    ("MAPE", "Mean absolute percentage error of the predicted slowdown."),
    ("JCT", "Job completion time: from submission to finish, waiting included."),
    (
        "interval",
        "In brackets: the range that holds the true value at the stated level, over independent repeats n.",
    ),
    (
        "simulated",
        "Computed by a model, not measured on hardware. Simulated and measured numbers never share a figure here.",
    ),
];
