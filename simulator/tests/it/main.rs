//! The engine against hand calculations, laws and published numbers.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are outside the functions that clippy knows as tests"
)]
#![expect(clippy::float_cmp, reason = "times of small runs are exact sums of whole numbers")]

mod elastico;
mod engine;
mod external;
mod gavel;
mod hand;
mod laws;
mod muri;
mod policies;
mod published;
mod sweep;
mod traces;
