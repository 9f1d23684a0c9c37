//! Work on tables: embeddings and graphs.

use super::transformer::perceptron;
use super::{
    INFERENCE, InferenceStep, MATRIX, Optimiser, TrainingStep, inference, pointwise, times, training,
};
use crate::axes::Axis;
use crate::op::{Op, Pass};
use crate::structure::{Structure, free};
use elastico_core::WorkloadKind;

/// Dense inputs of the bottom layers, as in the Criteo data of the MLPerf DLRM.
const DENSE_INPUTS: u64 = 13;

pub(crate) const RECOMMENDER_TRAINING: Structure = Structure {
    name: "recommender_training",
    kind: WorkloadKind::Training,
    meaning: "embedding bags, pairwise interaction and dense layers (Naumov et al. 2019), sparse Adagrad",
    axes: &[
        Axis::integer("batch", "b", "samples per step", 1, 1_048_576).scale(32),
        Axis::integer("rows", "r", "rows of all tables together", 1_000, 10_000_000_000).shrink(100_000),
        Axis::integer("dim", "d", "width of an embedding", 4, 1_024).shrink(16),
        Axis::integer("tables", "t", "tables", 1, 1_024).or(26),
        Axis::integer("pool", "p", "rows looked up and added per table and sample", 1, 1_024).or(1).shrink(1),
        Axis::integer("hidden", "h", "width of the dense layers", 16, 16_384).or(512).shrink(32),
        Axis::ratio("skew", "z", "exponent of the Zipf law of the row numbers", (0.0, 2.0), 1.05),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(200),
        Axis::dtype(MATRIX),
    ],
    check: free,
    build: |axes| {
        let (batch, rows, dim) = (axes.integer("batch"), axes.integer("rows"), axes.integer("dim"));
        let (tables, pool, hidden) = (axes.integer("tables"), axes.integer("pool"), axes.integer("hidden"));
        let dtype = axes.dtype();
        let lookups = times(&[batch, tables, pool]);
        let features = tables + 1;
        let pairs = features * (features - 1) / 2 + dim;
        let gemm = |n, k| Op::Gemm { m: batch, n, k, batch: 1, dtype };
        let relu = pointwise(times(&[batch, hidden]), 1, 2, dtype);
        let mut forward = vec![
            Op::Gather {
                lookups,
                columns: dim,
                table_rows: rows,
                pooled: pool,
                skew: axes.ratio("skew"),
                dtype,
            },
            gemm(hidden, DENSE_INPUTS),
            relu,
            gemm(dim, hidden),
            Op::Gemm { m: features, n: features, k: dim, batch, dtype },
            gemm(hidden, pairs),
            relu,
        ];
        forward.extend(perceptron(batch, hidden, 2, dtype));
        forward.push(gemm(1, hidden));
        let dense = DENSE_INPUTS * hidden
            + dim * hidden
            + times(&[pairs, hidden])
            + times(&[2, hidden, hidden])
            + hidden;
        let row = dim.saturating_mul(dtype.bytes() as u64);
        training(TrainingStep {
            gap: axes.integer("gap"),
            input: times(&[lookups, 8]).saturating_add(times(&[batch, DENSE_INPUTS, 4])),
            forward,
            parameters: dense,
            // Row-wise Adagrad keeps one FP32 number per row.
            tables: times(&[rows, row.saturating_add(4)]),
            optimiser: Optimiser::Adam,
            dtype,
        })
    },
};

pub(crate) const GRAPH_TRAINING: Structure = Structure {
    name: "graph_training",
    kind: WorkloadKind::Training,
    meaning: "graph convolutions with mean aggregation (Hamilton et al. 2017): gather, reduce, product, scatter back",
    axes: &[
        Axis::integer("nodes", "n", "nodes", 16, 1_000_000_000).shrink(256),
        Axis::integer("degree", "e", "neighbours of a node", 1, 4_096).shrink(4),
        Axis::integer("features", "f", "width of a node's features", 4, 8_192).shrink(16),
        Axis::integer("layers", "l", "layers", 1, 64).or(2).shrink(1),
        Axis::ratio("skew", "z", "exponent of the Zipf law of the neighbours", (0.0, 2.0), 0.5),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(300),
        Axis::dtype(MATRIX),
    ],
    check: free,
    build: |axes| {
        let (nodes, degree, features) =
            (axes.integer("nodes"), axes.integer("degree"), axes.integer("features"));
        let (layers, dtype) = (axes.integer("layers"), axes.dtype());
        let layer = [
            Op::Gather {
                lookups: times(&[nodes, degree]),
                columns: features,
                table_rows: nodes,
                pooled: degree,
                skew: axes.ratio("skew"),
                dtype,
            },
            // The node's own features beside the mean of its neighbours'.
            Op::Gemm { m: nodes, n: features, k: times(&[2, features]), batch: 1, dtype },
            pointwise(times(&[nodes, features]), 1, 2, dtype),
        ];
        training(TrainingStep {
            gap: axes.integer("gap"),
            input: 0,
            forward: (0..layers).flat_map(|_| layer).collect(),
            parameters: times(&[layers, 2, features, features]),
            // Features of all nodes and the neighbour lists.
            tables: times(&[nodes, features, dtype.bytes() as u64])
                .saturating_add(times(&[nodes, degree, 8])),
            optimiser: Optimiser::Adam,
            dtype,
        })
    },
};

pub(crate) const EMBEDDING: Structure = Structure {
    name: "embedding_inference",
    kind: WorkloadKind::Inference,
    meaning: "embedding lookups and scores against candidates",
    axes: &[
        Axis::integer("batch", "b", "queries per request", 1, 1_048_576).scale(1),
        Axis::integer("rows", "r", "rows of the table", 1_000, 10_000_000_000).shrink(100_000),
        Axis::integer("dim", "d", "width of an embedding", 4, 2_048).shrink(16),
        Axis::integer("pool", "p", "rows looked up and added per query", 1, 4_096).or(64).shrink(4),
        Axis::integer("candidates", "c", "candidates scored per query", 1, 65_536).or(256).shrink(16),
        Axis::ratio("skew", "z", "exponent of the Zipf law of the row numbers", (0.0, 2.0), 1.05),
        Axis::integer("gap", "g", "host time before a request, in microseconds", 0, 1_000_000).or(100),
        Axis::dtype(INFERENCE),
    ],
    check: free,
    build: |axes| {
        let (batch, rows, dim) = (axes.integer("batch"), axes.integer("rows"), axes.integer("dim"));
        let (pool, candidates, dtype) = (axes.integer("pool"), axes.integer("candidates"), axes.dtype());
        let skew = axes.ratio("skew");
        let gather =
            |lookups, pooled| Op::Gather { lookups, columns: dim, table_rows: rows, pooled, skew, dtype };
        inference(InferenceStep {
            gap: axes.integer("gap"),
            input: times(&[batch, pool + candidates, 8]),
            output: times(&[batch, candidates, 4]),
            forward: vec![
                gather(times(&[batch, pool]), pool),
                gather(times(&[batch, candidates]), 1),
                Op::Gemm { m: 1, n: candidates, k: dim, batch, dtype },
                Op::Softmax { rows: batch, columns: candidates, pass: Pass::Forward, dtype },
            ],
            weights: rows as f64 * dim as f64 * dtype.bytes(),
            cache: 0.0,
        })
    },
};
