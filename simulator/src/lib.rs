//! A cluster in a trace: what a scheduling policy would have done. Every number of it is simulated.
//!
//! A [`Trace`] of jobs arrives at a cluster of equal nodes ([`ClusterSpec`]). At each arrival and finish a policy
//! ([`PolicyKind`]) starts, joins or preempts jobs; [`simulate`] moves time from event to event and returns a
//! [`Simulation`]: completion times, queueing, utilisation, harm. [`compare`] holds policies against each other on the
//! same traces, with paired ratios.
//!
//! Co-location has two inputs that must not be one: the *truth*, a table of slowdowns that moves the jobs, and the
//! *planner*, the predictions that the policy may look at ([`Tables`]). Both are named in the result.
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

mod cluster;
mod compare;
mod engine;
mod error;
mod metrics;
mod policies;
mod tables;
mod trace;

pub use cluster::ClusterSpec;
pub use compare::{Comparison, ComparisonRow, PairedRatio, compare};
pub use engine::{Options, Round, simulate, simulate_with};
pub use error::Error;
pub use metrics::{JobOutcome, Simulation};
pub use policies::{ElasticoOptions, Policy, PolicyKind};
pub use tables::{PairOracle, PairSlowdown, SlowdownTable, Tables};
pub use trace::{
    Attempts, DeviceDemand, GavelThroughputs, GpuCount, MAPPING_TEMPLATE, PRESETS, ReadOptions,
    SyntheticOptions, TimeUnit, TokenRate, Trace, TraceFormat, TraceJob, TraceSummary, Warning,
    read_openb_nodes,
};
