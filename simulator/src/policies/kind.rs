//! The policies that have a name.

use super::srtf::Left;
use super::{ElasticoOptions, GreedyOptions, Pairing, Policy};
use super::{
    best_fit, elastico, external, fifo, gavel, greedy_pairs, las, lucid, memory_fit_pairs, muri, pollux,
    random_pairs, sia, sjf, srtf,
};
use crate::Error;
use crate::error::check;
use elastico_core::{Seed, suggest};
use serde::Serialize;

/// A policy with its settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PolicyKind {
    /// In order of submission; the first that does not fit holds up all others.
    Fifo,
    /// In order of submission, but jobs that fit overtake one that does not. Nothing is reserved for it.
    FifoBackfill,
    /// The largest job that fits, again and again.
    BestFit,
    /// Shortest job first, not preemptive. It knows durations up to a factor drawn once for each job.
    Sjf {
        /// Largest factor by which a duration is misjudged, either way; 1 = an oracle.
        error_factor: f64,
        /// Seed of the factors.
        seed: Seed,
    },
    /// Shortest remaining time first, preemptive. It knows durations up to a factor drawn once for each job.
    Srtf {
        /// Largest factor by which a duration is misjudged, either way; 1 = an oracle.
        error_factor: f64,
        /// Seed of the factors.
        seed: Seed,
    },
    /// Shortest remaining service first: as `Srtf`, by the GPU-seconds left, as Tiresias and Muri simulate it.
    Srsf {
        /// Largest factor by which a duration is misjudged, either way; 1 = an oracle.
        error_factor: f64,
        /// Seed of the factors.
        seed: Seed,
    },
    /// Least attained service in queues, preemptive, as discretised 2D-LAS of Tiresias (Gu et al., NSDI 2019).
    Las {
        /// GPU-seconds at which a job falls into the next queue, ascending.
        thresholds_gpu_seconds: Vec<f64>,
    },
    /// Max-min fairness over time fractions, heterogeneity aware, in rounds (Narayanan et al., Gavel, OSDI 2020).
    Gavel {
        /// Length of a round.
        round_seconds: f64,
        /// Whether two jobs may share GPUs.
        shares_space: bool,
    },
    /// GPU counts by the power mean of speedups, in rounds (Qiao et al., Pollux, OSDI 2021).
    Pollux {
        /// Length of a round.
        round_seconds: f64,
    },
    /// Pools and GPU counts by powers of goodput, in rounds (Jayaram Subramanya et al., Sia, SOSP 2023).
    Sia {
        /// Length of a round.
        round_seconds: f64,
    },
    /// Shortest GPU time first and indolent packing by share scores, not preemptive (Hu et al., Lucid, ASPLOS 2023).
    Lucid {
        /// Largest factor by which a duration is misjudged, either way; 1 = an oracle.
        error_factor: f64,
        /// Seed of the factors.
        seed: Seed,
    },
    /// Least attained service, and pairs that complement each other, in rounds (Zhao et al., Muri, SIGCOMM 2022).
    Muri {
        /// Length of a round.
        round_seconds: f64,
    },
    /// Shapes, shadow prices and pairs solved together, or an ablation of that.
    Elastico(ElasticoOptions),
    /// Backfill, and jobs of equal GPU counts beside one another where the planner expects a gain and no harm: ElastiCo
    /// without shapes and prices.
    GreedyPairs(GreedyOptions),
    /// Backfill, and random pairs of equal GPU counts.
    RandomPairs {
        /// Seed of the pairs.
        seed: Seed,
    },
    /// Backfill, and pairs of equal GPU counts whose memory fits.
    MemoryFitPairs,
    /// A program that speaks JSON lines.
    External {
        /// Its name in results, `external:` and the command.
        name: String,
        /// How long a round may take it, real time.
        timeout_seconds: f64,
    },
}

/// What a name that is a program begins with.
const EXTERNAL: &str = "external:";

/// Estimates of durations in published schedulers are seldom better than this.
pub(super) const NOISE: f64 = 2.0;

impl PolicyKind {
    /// The names that parse, besides `external:COMMAND`. Only `sjf_oracle`, `srtf_oracle` and `srsf` know durations, as does
    /// `elastico`, which takes them for the work that a job states; the noisy ones and `lucid` know them up to a factor of 2
    /// either way.
    pub const NAMES: [&'static str; 25] = [
        "fifo",
        "fifo_backfill",
        "best_fit",
        "sjf_oracle",
        "sjf_noisy",
        "srtf_oracle",
        "srtf_noisy",
        "srsf",
        "las",
        "gavel",
        "gavel_pairs",
        "pollux",
        "sia",
        "lucid",
        "muri",
        "greedy_pairs",
        "random_pairs",
        "memory_fit_pairs",
        "elastico",
        "elastico_noisy",
        "elastico_oracle",
        "elastico_no_shapes",
        "elastico_no_prices",
        "elastico_no_pairs",
        "elastico_sequential",
    ];

    /// The policy of a name with its usual settings.
    ///
    /// # Errors
    /// An unknown name, with the nearest known one.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let seed = Seed(0);
        match name {
            "fifo" => Ok(Self::Fifo),
            "fifo_backfill" => Ok(Self::FifoBackfill),
            "best_fit" => Ok(Self::BestFit),
            "sjf_oracle" => Ok(Self::Sjf { error_factor: 1.0, seed }),
            "sjf_noisy" => Ok(Self::Sjf { error_factor: NOISE, seed }),
            "srtf_oracle" => Ok(Self::Srtf { error_factor: 1.0, seed }),
            "srsf" => Ok(Self::Srsf { error_factor: 1.0, seed }),
            "srtf_noisy" => Ok(Self::Srtf { error_factor: NOISE, seed }),
            // One and eight GPU-hours: the first queue holds three of four Philly jobs to their end.
            "las" => Ok(Self::Las { thresholds_gpu_seconds: vec![3600.0, 28_800.0] }),
            // The lengths of rounds are those of the papers' experiments.
            "gavel" => Ok(Self::Gavel { round_seconds: 360.0, shares_space: false }),
            "gavel_pairs" => Ok(Self::Gavel { round_seconds: 360.0, shares_space: true }),
            "pollux" => Ok(Self::Pollux { round_seconds: 60.0 }),
            "sia" => Ok(Self::Sia { round_seconds: 60.0 }),
            "lucid" => Ok(Self::Lucid { error_factor: NOISE, seed }),
            "muri" => Ok(Self::Muri { round_seconds: 360.0 }),
            "greedy_pairs" => Ok(Self::GreedyPairs(GreedyOptions::default())),
            "random_pairs" => Ok(Self::RandomPairs { seed }),
            "memory_fit_pairs" => Ok(Self::MemoryFitPairs),
            _ if name.starts_with(EXTERNAL) => {
                Ok(Self::External { name: name.to_owned(), timeout_seconds: 10.0 })
            }
            _ => ElasticoOptions::named(name).map(Self::Elastico).ok_or_else(|| Error::Policy {
                name: name.to_owned(),
                suggestion: suggest(name, Self::NAMES),
            }),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Fifo => "fifo",
            Self::FifoBackfill => "fifo_backfill",
            Self::BestFit => "best_fit",
            Self::Sjf { error_factor, .. } if *error_factor > 1.0 => "sjf_noisy",
            Self::Sjf { .. } => "sjf_oracle",
            Self::Srtf { error_factor, .. } if *error_factor > 1.0 => "srtf_noisy",
            Self::Srtf { .. } => "srtf_oracle",
            Self::Srsf { .. } => "srsf",
            Self::Las { .. } => "las",
            Self::Gavel { shares_space: true, .. } => "gavel_pairs",
            Self::Gavel { .. } => "gavel",
            Self::Pollux { .. } => "pollux",
            Self::Sia { .. } => "sia",
            Self::Lucid { error_factor, .. } if *error_factor > 1.0 => "lucid",
            Self::Lucid { .. } => "lucid_oracle",
            Self::Muri { .. } => "muri",
            Self::Elastico(options) => options.name(),
            Self::GreedyPairs(_) => "greedy_pairs",
            Self::RandomPairs { .. } => "random_pairs",
            Self::MemoryFitPairs => "memory_fit_pairs",
            Self::External { name, .. } => name,
        }
    }

    /// Whether it plans with the truth instead of the planner.
    pub const fn is_oracle(&self) -> bool {
        matches!(self, Self::Elastico(ElasticoOptions { oracle: true, .. }))
    }

    /// Whether it puts jobs beside one another, and so needs tables of slowdowns. A program may do so where there are any.
    pub const fn colocates(&self) -> bool {
        let elastico_shares = matches!(
            self,
            Self::Elastico(ElasticoOptions { pairing: Pairing::Joint | Pairing::Sequential, .. })
        );
        elastico_shares
            || matches!(
                self,
                Self::Gavel { shares_space: true, .. }
                    | Self::Lucid { .. }
                    | Self::Muri { .. }
                    | Self::GreedyPairs(_)
                    | Self::RandomPairs { .. }
                    | Self::MemoryFitPairs
            )
    }

    /// The nearest policy that never puts jobs beside one another, where it has one.
    pub const fn without_pairs(&self) -> Option<&'static str> {
        match self {
            Self::Elastico(_) => Some("elastico_no_pairs"),
            Self::Gavel { .. } => Some("gavel"),
            Self::GreedyPairs(_) | Self::RandomPairs { .. } | Self::MemoryFitPairs => Some("fifo_backfill"),
            _ => None,
        }
    }

    pub(crate) fn build(&self) -> Result<Box<dyn Policy>, Error> {
        let factor = |value: f64| check(|| "error_factor".to_owned(), value, 1.0, "1 or more");
        let length = |value: f64| check(|| "round_seconds".to_owned(), value, 1e-3, "at least 0.001");
        Ok(match self {
            Self::Fifo => Box::new(fifo::Fifo { backfill: false }),
            Self::FifoBackfill => Box::new(fifo::Fifo { backfill: true }),
            Self::BestFit => Box::new(best_fit::BestFit),
            Self::Sjf { error_factor, seed } => {
                factor(*error_factor)?;
                Box::new(sjf::Sjf::new(*error_factor, *seed))
            }
            Self::Srtf { error_factor, seed } => {
                factor(*error_factor)?;
                Box::new(srtf::Srtf::new(*error_factor, *seed, Left::Seconds))
            }
            Self::Srsf { error_factor, seed } => {
                factor(*error_factor)?;
                Box::new(srtf::Srtf::new(*error_factor, *seed, Left::GpuSeconds))
            }
            Self::Las { thresholds_gpu_seconds } => {
                let mut above = f64::MIN_POSITIVE;
                for threshold in thresholds_gpu_seconds {
                    let must = "above 0 and above the one before it";
                    check(|| "a threshold".to_owned(), *threshold, above, must)?;
                    above = threshold.next_up();
                }
                Box::new(las::Las::new(thresholds_gpu_seconds.clone()))
            }
            Self::Gavel { round_seconds, shares_space } => {
                length(*round_seconds)?;
                Box::new(gavel::Gavel::new(*round_seconds, *shares_space))
            }
            Self::Pollux { round_seconds } => {
                length(*round_seconds)?;
                Box::new(pollux::Pollux::new(*round_seconds))
            }
            Self::Sia { round_seconds } => {
                length(*round_seconds)?;
                Box::new(sia::Sia::new(*round_seconds))
            }
            Self::Lucid { error_factor, seed } => {
                factor(*error_factor)?;
                Box::new(lucid::Lucid::new(*error_factor, *seed))
            }
            Self::Muri { round_seconds } => {
                length(*round_seconds)?;
                Box::new(muri::Muri::new(*round_seconds))
            }
            Self::Elastico(options) => Box::new(elastico::Elastico::new(options)?),
            Self::GreedyPairs(options) => Box::new(greedy_pairs::GreedyPairs::new(options)?),
            Self::RandomPairs { seed } => Box::new(random_pairs::RandomPairs::new(*seed)),
            Self::MemoryFitPairs => Box::new(memory_fit_pairs::MemoryFitPairs),
            Self::External { name, timeout_seconds } => {
                let command = name.strip_prefix(EXTERNAL).unwrap_or(name);
                Box::new(external::External::new(command, *timeout_seconds)?)
            }
        })
    }
}
