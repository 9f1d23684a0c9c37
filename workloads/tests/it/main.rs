//! The bundled catalogue and what users may write in their own; its steps as launch plans.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod bundled;
mod hand_counts;
mod host_kernels;
mod launch;
mod listing;
mod readme;
mod refusals;
mod selection;
