//! Trace-driven simulation of a cluster under scheduling policies.
