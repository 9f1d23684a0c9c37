//! Recurrent cells: long chains of small dependent products.

use super::{MATRIX, Optimiser, TrainingStep, times, training_with_backward};
use crate::axes::Axis;
use crate::op::Op;
use crate::structure::{Structure, free};
use elastico_core::WorkloadKind;

pub(crate) const TRAINING: Structure = Structure {
    name: "lstm_training",
    kind: WorkloadKind::Training,
    meaning: "an LSTM layer unrolled over time: forward, backward through time, AdamW",
    axes: &[
        Axis::integer("batch", "b", "sequences per step", 1, 65_536).scale(1),
        Axis::integer("sequence", "s", "time steps", 2, 512).shrink(8),
        Axis::integer("hidden", "h", "width of the state", 16, 16_384).shrink(64),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(100),
        Axis::dtype(MATRIX),
    ],
    check: free,
    build: |axes| {
        let (batch, sequence, hidden) =
            (axes.integer("batch"), axes.integer("sequence"), axes.integer("hidden"));
        let dtype = axes.dtype();
        let gates = times(&[4, hidden]);
        let tokens = times(&[batch, sequence]);
        // The input projection of all time steps is one product (Appleyard et al. 2016, section 3.1).
        let input = Op::Gemm { m: tokens, n: gates, k: hidden, batch: 1, dtype };
        let recurrent = Op::Gemm { m: batch, n: gates, k: hidden, batch: 1, dtype };
        // Two sets of four gates and the cell state in; four gates, cell and hidden state out.
        let cell = |inputs, outputs| Op::Elementwise {
            elements: times(&[batch, hidden]),
            inputs,
            outputs,
            flops_per_element: 30,
            dtype,
        };
        let mut forward = vec![input];
        forward.extend((0..sequence).flat_map(|_| [recurrent, cell(9, 6)]));
        // Per time step only the gradient of the state; the filter gradients of all steps are one product each.
        let mut backward: Vec<_> = (0..sequence)
            .flat_map(|_| [cell(8, 5), Op::Gemm { m: batch, n: hidden, k: gates, batch: 1, dtype }])
            .collect();
        let filter = Op::Gemm { m: hidden, n: gates, k: tokens, batch: 1, dtype };
        backward.extend([filter, filter, Op::Gemm { m: tokens, n: hidden, k: gates, batch: 1, dtype }]);
        training_with_backward(
            TrainingStep {
                gap: axes.integer("gap"),
                input: times(&[tokens, 8]),
                forward,
                parameters: times(&[8, hidden, hidden]).saturating_add(times(&[8, hidden])),
                tables: 0,
                optimiser: Optimiser::Adam,
                dtype,
            },
            backward,
        )
    },
};
