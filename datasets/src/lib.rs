//! The dataset: schema, Parquet, validation, merge and imports. The only room that sees polars.
