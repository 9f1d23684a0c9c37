//! Hardware counters of a running device, through CUPTI.
//!
//! The one CUPTI mode that can look at two programs at once is PM sampling: the device's performance monitors are read
//! at a fixed interval, in one pass, without replay and without touching the programs. It sees the device, not a
//! process: runs alone give the counters of each side, a run together gives their sum.
//!
//! [`Cupti`] is the library and its host API, which needs neither GPU nor driver: [`Cupti::fit`] gives the metrics
//! that one pass of a chip can take. [`PmSampler`] samples a device. It belongs into a process of its own, because
//! CUPTI takes one subscriber per process, cannot be unloaded, and may crash: [`sampler_process`] is that process and
//! the coordinator's side of it.

#![expect(unsafe_code, reason = "calls into CUPTI")]

mod device;
mod error;
mod host;
mod library;
mod metrics;
pub mod sampler_process;
mod sampling;
mod sets;

pub use error::{CuptiError, MAJOR};
pub use host::Description;
pub(crate) use metrics::in_range;
pub use metrics::{Collector, Metric, MetricSet, Reduce, Series, metric_set, suspicion};
pub use sampling::{PmSampler, SamplerOptions, SamplerReport};
pub use sets::METRIC_SETS;

use crate::libraries::Libraries;
use host::Host;
use library::Functions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// CUPTI, loaded. It stays loaded until the process ends: closing 13.0 after use fails.
///
/// ```no_run
/// use elastico_gpu::cupti::Cupti;
/// use elastico_gpu::libraries::Libraries;
///
/// let cupti = Cupti::load(&Libraries::from_environment())?;
/// let set = cupti.fit("GH100", &[])?;
/// assert_eq!(cupti.passes("GH100", &set.names())?, 1);
/// # Ok::<(), elastico_gpu::cupti::CuptiError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cupti {
    functions: Arc<Functions>,
    path: PathBuf,
    version: u32,
}

/// The metrics that one pass of a chip can take.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedSet {
    /// The chip.
    pub chip: String,
    /// The chip whose set of [`METRIC_SETS`] it is, or a part of.
    pub base: &'static str,
    /// The metrics, in order of importance.
    pub metrics: Vec<&'static Metric>,
    /// Counters that cannot be had, each with its reason.
    pub absent: BTreeMap<&'static str, String>,
}

impl FittedSet {
    /// The names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.metrics.iter().map(|metric| metric.name).collect()
    }
}

impl Cupti {
    /// Loads the library, and `libnvperf_host.so` before it by full path. No driver is needed.
    ///
    /// CUPTI 13.2 crashes in its first call where there is no driver: call this in a process that may die, or with
    /// 13.0, wherever a driver is not certain.
    ///
    /// # Errors
    /// [`CuptiError`] where the library is missing, lacks a function, or is of another major version.
    pub fn load(libraries: &Libraries) -> Result<Self, CuptiError> {
        let (path, functions, version) = library::open(libraries)?;
        Ok(Self { functions, path, version })
    }

    /// As CUPTI numbers itself: 130001 for 13.0.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All chips that this CUPTI knows.
    ///
    /// # Errors
    /// [`CuptiError`] where the call fails.
    pub fn chips(&self) -> Result<Vec<String>, CuptiError> {
        host::chips(&self.functions)
    }

    /// What CUPTI says about a metric.
    ///
    /// # Errors
    /// [`CuptiError::Chip`] and [`CuptiError::Metric`] for unknown names.
    pub fn describe(&self, chip: &str, metric: &str) -> Result<Description, CuptiError> {
        Host::new(&self.functions, chip, &[])?.describe(metric)
    }

    /// How many passes these metrics need in PM sampling.
    ///
    /// # Errors
    /// [`CuptiError::Chip`] and [`CuptiError::Metric`] for unknown names.
    pub fn passes(&self, chip: &str, metrics: &[&str]) -> Result<u32, CuptiError> {
        let mut image = Host::new(&self.functions, chip, &[])?.config_image(metrics)?;
        host::passes(&self.functions, &mut image)
    }

    /// The metrics to sample on a chip: its own set or the nearest one, less what this chip or this device does not
    /// have in one pass. `availability` is the device's image, or empty to ask for the chip in general.
    ///
    /// # Errors
    /// [`CuptiError::Chip`] where no set has anything in common with the chip.
    pub fn fit(&self, chip: &str, availability: &[u8]) -> Result<FittedSet, CuptiError> {
        // A chip that CUPTI does not know is an error even where a relative has a set.
        Host::new(&self.functions, chip, availability)?;
        let relatives = metrics::relatives(chip);
        let candidates =
            metric_set(chip).into_iter().chain(relatives.into_iter().filter(|set| set.chip != chip));
        let mut best: Option<FittedSet> = None;
        for set in candidates {
            let fitted = self.fit_set(chip, availability, set)?;
            let is_whole = fitted.metrics.len() == set.metrics.len();
            if best.as_ref().is_none_or(|best| fitted.metrics.len() > best.metrics.len()) {
                best = Some(fitted);
            }
            if is_whole {
                break;
            }
        }
        best.filter(|fitted| !fitted.metrics.is_empty())
            .ok_or_else(|| CuptiError::Chip { chip: chip.to_owned() })
    }

    fn fit_set(
        &self,
        chip: &str,
        availability: &[u8],
        set: &'static MetricSet,
    ) -> Result<FittedSet, CuptiError> {
        let all: Vec<&'static Metric> = set.metrics.iter().collect();
        let mut fitted = FittedSet {
            chip: chip.to_owned(),
            base: set.chip,
            metrics: Vec::new(),
            absent: set.absent.iter().map(|(counter, reason)| (*counter, (*reason).to_owned())).collect(),
        };
        if self.is_one_pass(chip, availability, &all)? {
            fitted.metrics = all;
            return Ok(fitted);
        }
        // Greedily, the most important first: one call per metric, some milliseconds each.
        for metric in &all {
            // A hit rate without the traffic that weighs it is no counter.
            let is_weighable = match metric.reduce {
                Reduce::WeightedBy(name) => fitted.metrics.iter().any(|kept| kept.name == name),
                Reduce::Mean | Reduce::Rate => true,
            };
            fitted.metrics.push(metric);
            if !is_weighable || !self.is_one_pass(chip, availability, &fitted.metrics)? {
                fitted.metrics.pop();
            }
        }
        for metric in all {
            if let Some(counter) = metric.counter
                && !fitted.metrics.iter().any(|kept| kept.counter == Some(counter))
            {
                let reason = format!("`{}` does not fit the one pass of {chip}", metric.name);
                fitted.absent.insert(counter, reason);
            }
        }
        Ok(fitted)
    }

    /// Whether CUPTI knows all of these and takes them in one pass.
    fn is_one_pass(
        &self,
        chip: &str,
        availability: &[u8],
        metrics: &[&'static Metric],
    ) -> Result<bool, CuptiError> {
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name).collect();
        let host = Host::new(&self.functions, chip, availability)?;
        match host.config_image(&names) {
            Ok(mut image) => Ok(host::passes(&self.functions, &mut image)? == 1),
            // What CUPTI answers to metrics that the chip, or this very device, does not have: 17 and 1 where it is
            // asked for the chip, and any other code where the device's image leaves them out.
            Err(CuptiError::Metric { .. } | CuptiError::Call { .. } | CuptiError::Unsupported { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
