//! The two sides of a pair: in which shapes each can be, and which of these fit on one GPU together.

use crate::pairing::PairOutcome;
use crate::resources::Amounts;
use crate::shapes::ShapeFamily;
use crate::worth::Worth;
use elastico_core::PoolId;

/// A way for two jobs to share a GPU of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PairChoice {
    pub(crate) outcome: PairOutcome,
    /// Indexes into the shape families of both.
    pub(crate) shapes: [usize; 2],
    /// What each is worth.
    pub(crate) values: [f64; 2],
    /// Whether each must be restarted.
    pub(crate) restarts: [bool; 2],
}

impl PairChoice {
    pub(super) fn swapped(self) -> Self {
        let Self { outcome, shapes: [a, b], values: [value_a, value_b], restarts: [restart_a, restart_b] } =
            self;
        let PairOutcome { sharing, slowdown, upper, in_domain } = outcome;
        let turn = |[a, b]: [f64; 2]| [b, a];
        Self {
            outcome: PairOutcome {
                sharing: sharing.swapped(),
                slowdown: turn(slowdown),
                upper: turn(upper),
                in_domain,
            },
            shapes: [b, a],
            values: [value_b, value_a],
            restarts: [restart_b, restart_a],
        }
    }
}

/// One job on one GPU of a pool.
pub(super) struct Alone {
    pub(super) amounts: Amounts,
    /// The fastest first, as few as there are ways to leave memory to a co-runner: most often one.
    pub(super) halves: Vec<Half>,
}

/// A shape inside a pair.
pub(super) struct Half {
    /// Index into the job's family.
    pub(super) shape: usize,
    pub(super) throughput: f64,
    /// Device memory, where it is known.
    pub(super) memory: Option<f64>,
    /// Whether the job runs in this shape now, or not at all.
    pub(super) stays: bool,
}

impl Alone {
    /// What a pair needs to know of a job; `None` without a shape with one GPU in the pool.
    pub(super) fn of(family: &ShapeFamily, worth: &Worth, pool: &PoolId) -> Option<Self> {
        let fastest = family.single_gpu(pool)?;
        let halves = family.in_pair(pool).map(|(at, shape)| Half {
            shape: at,
            throughput: shape.normalized_throughput,
            memory: Some(shape.resources.gpu_memory_bytes).filter(|bytes| *bytes > 0.0),
            stays: !worth.restarts(shape),
        });
        Some(Self { amounts: fastest.resources.amounts(), halves: halves.collect() })
    }

    /// Whether the device memory of any of its shapes is known.
    pub(super) fn is_known(&self) -> bool {
        self.halves.iter().any(|half| half.memory.is_some())
    }
}

/// The shapes of both sides whose device memory fits together.
pub(super) fn fitting<'i>(
    a: &'i Alone,
    b: &'i Alone,
    gpu_memory: f64,
) -> impl Iterator<Item = [&'i Half; 2]> {
    a.halves.iter().flat_map(move |half_a| {
        let fits = move |half_b: &&Half| {
            half_a
                .memory
                .zip(half_b.memory)
                .is_some_and(|(memory_a, memory_b)| memory_a + memory_b <= gpu_memory)
        };
        b.halves.iter().filter(fits).map(move |half_b| [half_a, half_b])
    })
}
