//! Shapes from a fitted goodput: throughput times statistical efficiency, with the best batch for each number of GPUs.

use super::{Candidate, FULL, Origin, PerGpu, counts};
use crate::cluster::Pool;
use crate::jobs::Job;
use crate::settings::{Settings, choose};
use elastico_core::PoolId;
use elastico_models::WorkloadProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

const fn one() -> f64 {
    1.0
}

const fn one_pass() -> u32 {
    1
}

/// The goodput of data-parallel training (Qiao et al., Pollux, OSDI 2021).
///
/// With K GPUs, m examples per GPU and pass, and s passes per step (accumulation; s − 1 is the paper's s) the batch is
/// M = K m s, and
///
/// - T_grad = α_compute + β_compute m,
/// - T_sync = 0 for K = 1, α_local + β_local (K − 2) within a node, α_node + β_node (K − 2) over nodes,
/// - T_iter = (s − 1) T_grad + (T_grad^γ + T_sync^γ)^(1/γ): γ = 1 is no overlap of both, γ = ∞ all,
/// - efficiency = (φ + M₀) / (φ + M), φ the gradient noise scale (McCandlish et al., 2018), M₀ the reference batch,
/// - goodput = M / T_iter · efficiency, in examples per second that are worth as much as those of a batch of M₀.
///
/// A step of the job is one of the reference batch, so `work_steps` counts these, and the speed of a shape is
/// goodput / M₀. For each number of GPUs the shape is the (m, s) of the largest goodput with M >= M₀.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Goodput {
    /// φ: the batch at which noise and signal of the gradient are equal, in examples.
    pub noise_examples: f64,
    /// M₀: the batch that the user chose, in examples; no smaller one is used.
    pub reference_batch: u32,
    /// The largest batch with which training still converges, in examples; absent = any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch: Option<u32>,
    /// Most passes that are accumulated to one step; 1 = no accumulation.
    #[serde(default = "one_pass")]
    pub max_accumulation: u32,
    /// The fitted times, for each pool where the job can run.
    pub timing: Vec<Timing>,
}

/// The fitted times of one pool, or of every pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// The pool; absent = every pool that has no timing of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub pool: Option<PoolId>,
    /// The most examples per GPU that device memory holds.
    pub max_batch_per_gpu: u32,
    /// α_compute: the part of a pass that does not depend on its examples.
    pub compute_alpha_seconds: f64,
    /// β_compute: time for each example of a pass.
    pub compute_beta_seconds: f64,
    /// α_local: synchronising two GPUs of a node.
    #[serde(default)]
    pub local_alpha_seconds: f64,
    /// β_local: for each GPU more.
    #[serde(default)]
    pub local_beta_seconds: f64,
    /// α_node: synchronising over nodes.
    #[serde(default)]
    pub node_alpha_seconds: f64,
    /// β_node: for each GPU over two.
    #[serde(default)]
    pub node_beta_seconds: f64,
    /// γ: how far computing and synchronising overlap, 1 (not) to 10 (nearly all).
    #[serde(default = "one")]
    pub gamma: f64,
}

/// The settings of the best goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Best {
    pub(crate) batch_per_gpu: u32,
    pub(crate) passes: u32,
    /// Examples per second, each worth one of the reference batch.
    pub(crate) goodput: f64,
}

impl Timing {
    /// Time of one pass over so many examples per GPU.
    pub fn pass_seconds(&self, batch_per_gpu: u32) -> f64 {
        self.compute_beta_seconds.mul_add(f64::from(batch_per_gpu), self.compute_alpha_seconds)
    }

    /// Time to synchronise the gradient.
    pub fn sync_seconds(&self, gpus: u32, is_one_node: bool) -> f64 {
        let more = f64::from(gpus.saturating_sub(2));
        match (gpus, is_one_node) {
            (0 | 1, _) => 0.0,
            (_, true) => self.local_beta_seconds.mul_add(more, self.local_alpha_seconds),
            (_, false) => self.node_beta_seconds.mul_add(more, self.node_alpha_seconds),
        }
    }

    /// T_iter: time of one step with so many passes.
    pub fn step_seconds(&self, gpus: u32, is_one_node: bool, batch_per_gpu: u32, passes: u32) -> f64 {
        let (pass, sync) = (self.pass_seconds(batch_per_gpu), self.sync_seconds(gpus, is_one_node));
        // The norm from the larger of both, so that no power overflows.
        let (large, small) = (pass.max(sync), pass.min(sync));
        let last = if small > 0.0 {
            large * (1.0 + (small / large).powf(self.gamma)).powf(self.gamma.recip())
        } else {
            large
        };
        f64::from(passes.saturating_sub(1)).mul_add(pass, last)
    }
}

impl Goodput {
    /// The times on a pool.
    pub fn timing_of(&self, pool: &PoolId) -> Option<&Timing> {
        let own = self.timing.iter().find(|timing| timing.pool.as_ref() == Some(pool));
        own.or_else(|| self.timing.iter().find(|timing| timing.pool.is_none()))
    }

    /// Statistical efficiency of a batch: progress per example over that with the reference batch.
    pub fn efficiency(&self, batch: f64) -> f64 {
        (self.noise_examples + f64::from(self.reference_batch)) / (self.noise_examples + batch)
    }

    /// Examples per second, each worth one of the reference batch.
    pub fn hertz(
        &self,
        timing: &Timing,
        gpus: u32,
        is_one_node: bool,
        batch_per_gpu: u32,
        passes: u32,
    ) -> f64 {
        let batch = f64::from(gpus) * f64::from(batch_per_gpu) * f64::from(passes);
        batch / timing.step_seconds(gpus, is_one_node, batch_per_gpu, passes) * self.efficiency(batch)
    }

    /// The settings with the largest goodput; `None` where memory holds no reference batch, even accumulated.
    ///
    /// 1 / goodput is a sum of convex functions of m for fixed K and s, so a bisection on its slope finds the best m, and
    /// all s are tried. Of equals the fewest passes win.
    pub(crate) fn best(&self, timing: &Timing, gpus: u32, is_one_node: bool) -> Option<Best> {
        let mut best: Option<Best> = None;
        for passes in 1..=self.max_accumulation {
            let slots = u64::from(gpus) * u64::from(passes);
            let least = u64::from(self.reference_batch).div_ceil(slots).max(1);
            let most = self.max_batch.map_or(u64::MAX, |most| u64::from(most) / slots);
            let most = most.min(u64::from(timing.max_batch_per_gpu)) as u32;
            let Some(mut low) = u32::try_from(least).ok().filter(|least| *least <= most) else { continue };
            let hertz = |batch_per_gpu| self.hertz(timing, gpus, is_one_node, batch_per_gpu, passes);
            let mut high = most;
            while low < high {
                let middle = low + (high - low) / 2;
                if hertz(middle + 1) > hertz(middle) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            let goodput = hertz(low);
            if best.is_none_or(|best| goodput > best.goodput) {
                best = Some(Best { batch_per_gpu: low, passes, goodput });
            }
        }
        best
    }
}

pub(super) fn candidates(
    goodput: &Goodput,
    job: &Job,
    pool: &Pool,
    profile: Option<&WorkloadProfile>,
    drop: &mut impl FnMut(Option<u32>, String),
) -> Result<Vec<Candidate<'static>>, String> {
    let timing =
        goodput.timing_of(&pool.id).ok_or_else(|| "the goodput has no timing for this pool".to_owned())?;
    let per_gpu = PerGpu::of(job, profile);
    let names = &job.setting_names;
    let mut found = Vec::new();
    for gpus in counts(job, pool, std::iter::empty()) {
        let Some(best) = goodput.best(timing, gpus, gpus <= pool.gpus_per_node) else {
            let least = goodput.reference_batch;
            let most = goodput.max_batch.map_or(String::new(), |most| format!(" and at most {most}"));
            let reason = format!(
                "no batch of at least {least}{most}: device memory holds {} examples per GPU, {} passes are accumulated",
                timing.max_batch_per_gpu, goodput.max_accumulation
            );
            drop(Some(gpus), reason);
            continue;
        };
        let mut settings = Settings::new();
        let batch = u64::from(gpus) * u64::from(best.batch_per_gpu) * u64::from(best.passes);
        choose(&mut settings, &names.global_batch, u32::try_from(batch).unwrap_or(u32::MAX));
        choose(&mut settings, &names.batch_per_gpu, best.batch_per_gpu);
        choose(&mut settings, &names.accumulation_steps, best.passes);
        found.push(Candidate {
            gpus,
            share: FULL,
            seconds: f64::from(goodput.reference_batch) / best.goodput,
            origin: Origin::Fitted,
            per_gpu,
            settings: Cow::Owned(settings),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_goodput() -> impl Strategy<Value = Goodput> {
        let times = (1e-4..0.2_f64, 1e-5..1e-2_f64, 0.0..0.1_f64, 0.0..0.5_f64, 1.0..10.0_f64);
        (1.0..1e5_f64, 1_u32..300, 1_u32..6, 8_u32..300, times).prop_map(
            |(noise_examples, reference_batch, max_accumulation, max_batch_per_gpu, times)| Goodput {
                noise_examples,
                reference_batch,
                max_batch: None,
                max_accumulation,
                timing: vec![Timing {
                    pool: None,
                    max_batch_per_gpu,
                    compute_alpha_seconds: times.0,
                    compute_beta_seconds: times.1,
                    local_alpha_seconds: times.2,
                    local_beta_seconds: times.2 / 50.0,
                    node_alpha_seconds: times.3,
                    node_beta_seconds: times.3 / 100.0,
                    gamma: times.4,
                }],
            },
        )
    }

    proptest! {
        #[test]
        fn the_best_settings_are_those_of_a_full_search(
            goodput in any_goodput(), gpus in 1_u32..40, is_one_node: bool, most in prop::option::of(50_u32..5000),
        ) {
            let goodput = Goodput { max_batch: most, ..goodput };
            let timing = &goodput.timing[0];
            let mut full: Option<f64> = None;
            for passes in 1..=goodput.max_accumulation {
                for m in 1..=timing.max_batch_per_gpu {
                    let batch = gpus * m * passes;
                    if batch >= goodput.reference_batch && most.is_none_or(|most| batch <= most) {
                        let hertz = goodput.hertz(timing, gpus, is_one_node, m, passes);
                        full = Some(full.map_or(hertz, |full| full.max(hertz)));
                    }
                }
            }
            let best = goodput.best(timing, gpus, is_one_node);
            prop_assert_eq!(best.is_some(), full.is_some());
            if let (Some(best), Some(full)) = (best, full) {
                prop_assert!((best.goodput / full - 1.0).abs() < 1e-9, "{best:?} against {full}");
                prop_assert!(best.batch_per_gpu <= timing.max_batch_per_gpu);
            }
        }

        #[test]
        fn the_step_lies_between_full_and_no_overlap(goodput in any_goodput(), gpus in 2_u32..40, m in 1_u32..300) {
            let timing = &goodput.timing[0];
            let (pass, sync) = (timing.pass_seconds(m), timing.sync_seconds(gpus, true));
            let step = timing.step_seconds(gpus, true, m, 1);
            prop_assert!(step >= pass.max(sync) * (1.0 - 1e-12) && step <= (pass + sync) * (1.0 + 1e-12));
            let twice = timing.step_seconds(gpus, true, m, 2);
            prop_assert!((twice - step - pass).abs() < 1e-9 * twice);
        }
    }
}
