//! Shape families as a user writes them.
