//! What runs: the benchmark catalogue and its step programs, with analytic demand.
