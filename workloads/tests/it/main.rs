//! The bundled catalogue and what users may write in their own.

mod bundled;
mod hand_counts;
mod host_kernels;
mod launch;
mod listing;
mod readme;
mod refusals;
mod selection;
