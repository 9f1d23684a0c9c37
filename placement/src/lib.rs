//! Shapes, prices, pairs, placement and what-if questions: the light runtime.
