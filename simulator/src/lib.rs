//! A cluster in a trace: what a scheduling policy would have done. Every number of it is simulated.
//!
//! A [`Trace`] of jobs arrives at a cluster of pools of equal nodes ([`ClusterSpec`]). At each arrival and finish a policy
//! ([`PolicyKind`]) starts, joins, resizes or preempts jobs; [`simulate`] moves time from event to event and returns a
//! [`Simulation`]: completion times, queueing, utilisation, harm. A [`Sweep`] holds policies against each other on the same
//! traces, over clusters, loads and seeds, with paired ratios.
//!
//! A job runs as its trace says on the GPUs that it asks for. Elsewhere, on another number of GPUs, or beside another job
//! its rate comes from an [`Oracle`], of which there are two that must not be one: the *truth* moves the jobs, and the
//! *planner* is all that the policy may look at ([`Tables`]). Both are named in the result. What the truth does not know
//! cannot happen.
//!
//! ```
//! use elastico_simulator::{ClusterSpec, Options, PolicyKind, Trace, simulate};
//! use std::path::Path;
//!
//! let text = "job_id,num_gpu,submit_time,model_name,duration\n0,4,0,vgg19,100\n1,2,10,vgg11,50\n2,2,20,vgg11,50\n";
//! let trace = Trace::parse_tiresias(text, Path::new("jobs.csv"), None)?;
//! let cluster: ClusterSpec = "n1g4".parse()?;
//! let result = simulate(&trace, &cluster, &PolicyKind::Fifo, None, &Options::default())?;
//! // Both small jobs wait for the large one, then run side by side.
//! assert_eq!(result.makespan_seconds, 150.0);
//! assert_eq!(result.jct_mean_seconds, (100.0 + 140.0 + 130.0) / 3.0);
//! # Ok::<(), elastico_simulator::Error>(())
//! ```

mod advice;
mod apply;
mod cluster;
mod document;
mod engine;
mod error;
mod failures;
mod ledger;
mod metrics;
mod modes;
mod moves;
mod nodes;
mod options;
mod places;
mod policies;
mod rates;
mod round;
mod speeds;
mod statistics;
mod sweep;
mod tables;
mod timeline;
mod trace;
mod victims;

pub use advice::idle_inputs;
pub use apply::Target;
pub use cluster::{ClusterSpec, PoolSpec};
pub use engine::{simulate, simulate_timed, simulate_with};
pub use error::Error;
pub use metrics::{JobOutcome, Simulation, Timing};
pub use modes::{ChosenModes, choose_modes};
pub use options::Options;
pub use policies::{Choosing, ElasticoOptions, GreedyOptions, Pairing, Policy, PolicyKind};
pub use rates::{Shape, ShapeRate};
pub use round::Round;
pub use speeds::SpeedTable;
pub use statistics::Interval;
pub use sweep::{
    FailedRun, PointSummary, PolicySummary, Rival, RunTiming, Scaling, ScalingOf, Sweep, SweepFolder,
    SweepRun, SweepSummary,
};
pub use tables::{Knowledge, Oracle, PairSlowdown, SlowdownTable, Tables};
pub use timeline::{Stay, Timeline};
pub use trace::{
    Attempts, DeviceDemand, GavelThroughputs, GpuCount, GpuShare, MAPPING_TEMPLATE, MixOptions, PRESETS,
    ReadOptions, ShareOf, SyntheticOptions, SyntheticWorkload, TimeUnit, TokenRate, Trace, TraceFormat,
    TraceJob, TraceSummary, Warning,
};

#[cfg(test)]
mod laws;
