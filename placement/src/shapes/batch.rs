//! Shapes from a table of batch sizes: offline inference of a language model.

use super::{Candidate, FULL, Origin, PerGpu};
use crate::cluster::Pool;
use crate::jobs::Job;
use crate::settings::{Settings, choose};
use elastico_core::PoolId;
use elastico_models::WorkloadProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

const fn one_gpu() -> u32 {
    1
}

/// How fast inference was seen to run with one batch size: a line of a load test.
///
/// The device memory is a mask: a batch whose weights and KV cache do not fit a GPU of the pool is no shape there. Of the
/// others the fastest for each number of GPUs counts; on one GPU slower ones with less memory stay for pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchPoint {
    /// The pool where it was measured; absent = it holds for every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub pool: Option<PoolId>,
    /// GPUs over which the model is split: the degree of tensor parallelism.
    #[serde(default = "one_gpu")]
    pub gpus: u32,
    /// Sequences in flight, or concurrent users.
    #[serde(alias = "users")]
    pub batch: u32,
    /// Steps per second, a step being what the job counts: a request or a token, the same in every line.
    pub throughput_hertz: f64,
    /// Peak device memory per GPU; the job's where neither this nor `kv_bytes` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// KV cache per GPU, beside `weights_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_bytes: Option<f64>,
    /// Weights per GPU; the job's `memory_bytes` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_bytes: Option<f64>,
    /// Further settings that the line was measured with, by the names that the job's entry point reads.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
}

impl BatchPoint {
    /// Peak device memory per GPU, where it is known; `of_job` is the job's.
    pub fn memory(&self, of_job: Option<f64>) -> Option<f64> {
        let with_cache = || Some(self.kv_bytes? + self.weights_bytes.or(of_job)?);
        self.memory_bytes.or_else(with_cache).or(if self.kv_bytes.is_none() { of_job } else { None })
    }
}

pub(super) fn candidates(
    job: &Job,
    pool: &Pool,
    profile: Option<&WorkloadProfile>,
) -> Result<Vec<Candidate<'static>>, String> {
    let per_gpu = PerGpu::of(job, profile);
    let own = |point: &&BatchPoint| point.pool.as_ref() == Some(&pool.id);
    // A line for this pool replaces the one for every pool.
    let general = job.batch.iter().filter(|point| {
        let replaced = || {
            job.batch.iter().filter(own).any(|own| {
                own.gpus == point.gpus && own.batch == point.batch && own.settings == point.settings
            })
        };
        point.pool.is_none() && !replaced()
    });
    let points: Vec<&BatchPoint> = job.batch.iter().filter(own).chain(general).collect();
    if points.is_empty() {
        return Err("no line of `batch` is for this pool".to_owned());
    }
    let names = &job.setting_names;
    let candidate = |point: &BatchPoint| {
        let mut settings = point.settings.clone();
        choose(&mut settings, &names.batch, point.batch);
        choose(&mut settings, &names.tensor_parallel, point.gpus);
        Candidate {
            gpus: point.gpus,
            share: FULL,
            seconds: point.throughput_hertz.recip(),
            origin: Origin::Measured,
            per_gpu: PerGpu { memory: point.memory(per_gpu.memory), ..per_gpu },
            settings: Cow::Owned(settings),
        }
    };
    Ok(points.into_iter().map(candidate).collect())
}
