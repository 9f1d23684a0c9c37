//! The trainer on data: Gavel's public measurements where they are at hand, made-up pairs elsewhere.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, outside of `#[test]` functions"
)]

mod active;
mod details;
mod few_shot;
mod gavel;
mod made_up;
mod pipeline;
mod refusals;
