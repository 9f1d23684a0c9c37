//! Fits, judges and exports predictors of pairwise slowdown.
