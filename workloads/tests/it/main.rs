//! The bundled catalogue and what users may write in their own.

mod bundled;
mod listing;
mod refusals;
mod selection;
