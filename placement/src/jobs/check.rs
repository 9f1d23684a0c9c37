//! The rules that a job of a file must keep.

use super::{Current, Job, MeasuredShape};
use crate::Error;
use crate::input::Source;
use crate::settings::{Setting, Settings};
use crate::shapes::{BatchPoint, Goodput};

type Entry<'a> = (usize, &'a str);

/// Weights, times of a step and their inverses beyond these are slips, and sums of them lose all digits.
const WEIGHTS: [f64; 2] = [1e-9, 1e12];
const SECONDS: [f64; 2] = [1e-9, 1e9];

impl Job {
    pub(super) fn check(&self, source: &Source<'_>, entry: Entry<'_>) -> Result<(), Error> {
        source.number(entry, "weight", Some(self.weight), 0.0, false)?;
        if self.weight > 0.0 {
            source.range(entry, "weight", Some(self.weight), WEIGHTS, "it must be 0, or")?;
        }
        source.number(entry, "arrival_seconds", Some(self.arrival_seconds), 0.0, false)?;
        source.number(entry, "waited_seconds", Some(self.waited_seconds), 0.0, false)?;
        source.number(entry, "work_steps", self.work_steps, 0.0, false)?;
        source.number(entry, "slo_slowdown", self.slo_slowdown, 1.0, false)?;
        source.number(entry, "memory_bytes", self.memory_bytes, 0.0, true)?;
        source.number(entry, "host_cores", Some(self.host_cores), 0.0, false)?;
        source.number(entry, "host_memory_bytes", Some(self.host_memory_bytes), 0.0, false)?;
        source.number(entry, "network_bytes_per_second", Some(self.network_bytes_per_second), 0.0, false)?;
        source.number(entry, "switch_seconds", Some(self.switch_seconds), 0.0, false)?;
        if self.gpus_min == 0 {
            return Err(source.refuse(entry, "gpus_min", 0, "it must be at least 1", None));
        }
        if let Some(most) = self.gpus_max.filter(|most| *most < self.gpus_min) {
            let rule = format!("it must be at least gpus_min, {}", self.gpus_min);
            return Err(source.refuse(entry, "gpus_max", most, rule, None));
        }
        if let Some(current) = &self.current {
            self.check_current(current, source, entry)?;
        }
        let families = [
            (!self.shape.is_empty(), "shape"),
            (!self.batch.is_empty(), "batch"),
            (self.goodput.is_some(), "goodput"),
        ];
        let given: Vec<&str> =
            families.iter().filter(|(is_given, _)| *is_given).map(|(_, name)| *name).collect();
        if let [first, second, ..] = given[..] {
            let value = format!("given beside `{first}`");
            let field = if second == "batch" { "batch" } else { "goodput" };
            let remedy = format!("keep `{first}` or `{second}`: a job has one source of its speed");
            return Err(source.refuse(entry, field, value, "their steps need not be the same", Some(remedy)));
        }
        if self.workload.is_none() && given.is_empty() {
            let remedy =
                "give `workload` (of the profiles), or a `[[job.shape]]`, `[[job.batch]]` or `[job.goodput]`"
                    .to_owned();
            return Err(source.refuse(
                entry,
                "workload",
                "absent",
                "nothing says how fast the job runs",
                Some(remedy),
            ));
        }
        let names = self.setting_names.all();
        if let Some(name) = names.iter().find(|name| !name.is_empty() && !is_name(name)) {
            return Err(source.refuse(
                entry,
                "setting_names",
                format!("`{}`", name.escape_debug()),
                NAME_RULE,
                None,
            ));
        }
        self.shape.iter().try_for_each(|shape| shape.check(source, entry))?;
        self.batch.iter().try_for_each(|point| self.check_batch(point, source, entry))?;
        self.goodput.iter().try_for_each(|goodput| goodput.check(source, entry))
    }

    fn check_batch(&self, point: &BatchPoint, source: &Source<'_>, entry: Entry<'_>) -> Result<(), Error> {
        source.number(entry, "throughput_hertz", Some(point.throughput_hertz), 0.0, true)?;
        source.range(entry, "throughput_hertz", Some(point.throughput_hertz), SECONDS, "it must be")?;
        source.number(entry, "memory_bytes", point.memory_bytes, 0.0, true)?;
        source.number(entry, "kv_bytes", point.kv_bytes, 0.0, false)?;
        source.number(entry, "weights_bytes", point.weights_bytes, 0.0, true)?;
        if point.gpus == 0 {
            return Err(source.refuse(entry, "gpus", 0, "a shape needs at least 1 GPU", None));
        }
        if point.batch == 0 {
            return Err(source.refuse(entry, "batch", 0, "a batch has at least 1 sequence", None));
        }
        if point.kv_bytes.is_some() && point.memory_bytes.is_some() {
            let remedy = "keep `memory_bytes`, the peak".to_owned();
            let value = format!("given for batch {} beside memory_bytes", point.batch);
            return Err(source.refuse(entry, "kv_bytes", value, "one of both says what fits", Some(remedy)));
        }
        if point.kv_bytes.is_some() && point.weights_bytes.or(self.memory_bytes).is_none() {
            let remedy = "give `weights_bytes` per GPU in the line, or `memory_bytes` of the job".to_owned();
            let value = format!("given for batch {}", point.batch);
            let rule = "without the weights it does not say what fits";
            return Err(source.refuse(entry, "kv_bytes", value, rule, Some(remedy)));
        }
        if point.weights_bytes.is_some() && point.kv_bytes.is_none() {
            let rule = "it counts together with kv_bytes";
            let value = format!("given for batch {} without kv_bytes", point.batch);
            return Err(source.refuse(entry, "weights_bytes", value, rule, None));
        }
        check_settings(&point.settings, source, entry)
    }

    fn check_current(&self, current: &Current, source: &Source<'_>, entry: Entry<'_>) -> Result<(), Error> {
        let refuse =
            |value: String, rule: &str| Err(source.refuse(entry, "current", value, rule.to_owned(), None));
        if current.gpus == 0 {
            return refuse("0 GPUs".to_owned(), "a job that runs has at least 1; leave `current` out");
        }
        if let Some(beside) = &current.beside {
            if *beside == self.id {
                return refuse(format!("beside `{beside}`"), "a job cannot be its own co-runner");
            }
            if current.gpus > 1 {
                return refuse(format!("{} GPUs beside `{beside}`", current.gpus), "a pair has one GPU");
            }
        }
        check_settings(&current.settings, source, entry)
    }
}

const NAME_RULE: &str = "a name has at least one letter, no blanks and no `=`";

fn is_name(name: &str) -> bool {
    let bad = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '=';
    !name.is_empty() && !name.chars().any(bad)
}

/// Names must be usable as environment variables or arguments, numbers must be numbers.
fn check_settings(settings: &Settings, source: &Source<'_>, entry: Entry<'_>) -> Result<(), Error> {
    if let Some(name) = settings.keys().find(|name| !is_name(name)) {
        let value = format!("named `{}`", name.escape_debug());
        return Err(source.refuse(entry, "settings", value, NAME_RULE, None));
    }
    let number = settings.iter().find_map(|(name, value)| match value {
        Setting::Number(number) if !number.is_finite() => Some((name, number)),
        _ => None,
    });
    number.map_or(Ok(()), |(name, number)| {
        let value = format!("{name} = {number}");
        Err(source.refuse(entry, "settings", value, "it must be a finite number", None))
    })
}

impl MeasuredShape {
    fn check(&self, source: &Source<'_>, entry: Entry<'_>) -> Result<(), Error> {
        source.number(entry, "step_seconds", self.step_seconds, 0.0, true)?;
        source.range(entry, "step_seconds", self.step_seconds, SECONDS, "it must be")?;
        source.number(entry, "throughput_hertz", self.throughput_hertz, 0.0, true)?;
        source.range(entry, "throughput_hertz", self.throughput_hertz, SECONDS, "it must be")?;
        source.number(entry, "memory_bytes", self.memory_bytes, 0.0, true)?;
        source.number(entry, "host_cores", self.host_cores, 0.0, false)?;
        source.number(entry, "host_memory_bytes", self.host_memory_bytes, 0.0, false)?;
        source.number(entry, "network_bytes_per_second", self.network_bytes_per_second, 0.0, false)?;
        source.number(entry, "share_ratio", Some(self.share_ratio), 0.0, true)?;
        if self.share_ratio > 1.0 {
            return Err(source.refuse(entry, "share_ratio", self.share_ratio, "it must be at most 1", None));
        }
        if self.gpus == 0 {
            return Err(source.refuse(entry, "gpus", 0, "a shape needs at least 1 GPU", None));
        }
        if self.gpus > 1 && self.share_ratio < 1.0 {
            let rule = "only a shape with one GPU may have a share of it";
            return Err(source.refuse(entry, "share_ratio", self.share_ratio, rule, None));
        }
        if self.step_seconds.is_some() == self.throughput_hertz.is_some() {
            return Err(source.refuse(
                entry,
                "step_seconds",
                self.step_seconds.map_or("absent".to_owned(), |seconds| seconds.to_string()),
                "a shape needs exactly one of step_seconds and throughput_hertz",
                None,
            ));
        }
        check_settings(&self.settings, source, entry)
    }
}

impl Goodput {
    fn check(&self, source: &Source<'_>, entry: Entry<'_>) -> Result<(), Error> {
        source.number(entry, "noise_examples", Some(self.noise_examples), 0.0, false)?;
        let refuse =
            |field, value: u32, rule: &str| Err(source.refuse(entry, field, value, rule.to_owned(), None));
        if self.reference_batch == 0 {
            return refuse("reference_batch", 0, "it must be at least 1");
        }
        if let Some(most) = self.max_batch.filter(|most| *most < self.reference_batch) {
            return refuse("max_batch", most, "it must be at least reference_batch");
        }
        if !(1..=1000).contains(&self.max_accumulation) {
            return refuse("max_accumulation", self.max_accumulation, "it must be 1 to 1000, 1 = none");
        }
        let mut pools: Vec<_> = self.timing.iter().map(|timing| &timing.pool).collect();
        pools.sort_unstable();
        if pools.is_empty() || pools.windows(2).any(|two| two[0] == two[1]) {
            let rule = "there must be one timing for each pool, or one without a pool";
            return Err(source.refuse(entry, "timing", format!("{} entries", pools.len()), rule, None));
        }
        for timing in &self.timing {
            if timing.max_batch_per_gpu == 0 {
                return refuse("max_batch_per_gpu", 0, "it must be at least 1");
            }
            source.number(entry, "compute_alpha_seconds", Some(timing.compute_alpha_seconds), 0.0, false)?;
            source.number(entry, "compute_beta_seconds", Some(timing.compute_beta_seconds), 0.0, true)?;
            source.number(entry, "local_alpha_seconds", Some(timing.local_alpha_seconds), 0.0, false)?;
            source.number(entry, "local_beta_seconds", Some(timing.local_beta_seconds), 0.0, false)?;
            source.number(entry, "node_alpha_seconds", Some(timing.node_alpha_seconds), 0.0, false)?;
            source.number(entry, "node_beta_seconds", Some(timing.node_beta_seconds), 0.0, false)?;
            source.number(entry, "gamma", Some(timing.gamma), 1.0, false)?;
        }
        Ok(())
    }
}
