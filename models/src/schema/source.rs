//! The naming rule of features: where each value comes from, and its unit.

use super::Side;
use crate::{Error, FIELDS};
use elastico_core::Chip;

/// Constants of the chip that a schema may name, with units, and where they stand.
pub(super) type DeviceConstant = (&'static str, &'static str, fn(&Chip) -> f64);
pub(super) const DEVICE: [DeviceConstant; 6] = [
    ("device_sm_total", "total", |chip| f64::from(chip.sm_count)),
    ("device_l2_bytes", "bytes", |chip| chip.l2.get()),
    ("device_memory_bytes", "bytes", |chip| chip.memory.get()),
    ("device_dram_bandwidth_bytes", "bytes/s", |chip| chip.dram_bandwidth.get()),
    ("device_fp32_flops", "flop/s", |chip| chip.fp32.get()),
    ("device_half_flops", "flop/s", |chip| chip.half.unwrap_or(chip.fp32).get()),
];

/// One-hot features of the sharing mode and the family of [`SharingMode`] that sets each.
pub(super) const SHARING: [(&str, &str); 4] = [
    ("sharing_time_slice_ratio", "time_slice"),
    ("sharing_mps_ratio", "mps"),
    ("sharing_mig_ratio", "mig"),
    ("sharing_streams_ratio", "streams"),
];

const UNITS: [&str; 8] = ["seconds", "bytes", "hertz", "watts", "joules", "celsius", "ratio", "total"];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SideSource {
    /// Share of the SMs that the sharing mode leaves to this side.
    Share,
    /// Isolated step time at that share over that at the full device.
    Partition,
    /// 1 for this family.
    Family(String),
    /// 1 for this workload.
    Workload(String),
    /// A field of the profile.
    Field(String),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ContextSource {
    Device(fn(&Chip) -> f64),
    Sharing(&'static str),
    /// 0: a profile does not know what measured the pair.
    Harness,
}

/// Where the value of a feature comes from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Side(Side, SideSource),
    Context(ContextSource),
}

/// The source and the unit of a feature by its name.
pub(super) fn parse(name: &str) -> Result<(Source, &'static str), Error> {
    let sided = name
        .strip_prefix("subject_")
        .map(|rest| (Side::Subject, rest))
        .or_else(|| name.strip_prefix("co_runner_").map(|rest| (Side::CoRunner, rest)));
    if let Some((side, rest)) = sided {
        let (source, unit) = side_source(name, rest)?;
        return Ok((Source::Side(side, source), unit));
    }
    if let Some((_, unit, constant)) = DEVICE.iter().find(|(known, ..)| *known == name) {
        return Ok((Source::Context(ContextSource::Device(*constant)), unit));
    }
    if let Some((_, family)) = SHARING.iter().find(|(known, _)| *known == name) {
        return Ok((Source::Context(ContextSource::Sharing(family)), "ratio"));
    }
    if let Some(harness) = name.strip_prefix("harness=") {
        named(name, harness)?;
        return Ok((Source::Context(ContextSource::Harness), "ratio"));
    }
    let known = DEVICE.iter().map(|(known, ..)| *known).chain(SHARING.iter().map(|(known, _)| *known));
    Err(Error::FeatureName {
        name: name.to_owned(),
        reason: "names begin with subject_ or co_runner_, or are a constant of the device, the sharing mode or harness=NAME"
            .into(),
        suggestion: elastico_core::suggest(name, known).map(str::to_owned),
    })
}

/// What follows the equals sign.
fn named(name: &str, value: &str) -> Result<String, Error> {
    if value.trim().is_empty() {
        let reason = "a name follows the equals sign".to_owned();
        return Err(Error::FeatureName { name: name.to_owned(), reason, suggestion: None });
    }
    Ok(value.to_owned())
}

/// Refuses a name that no field has: it is lower case and ends in a unit.
pub(crate) fn check_field(name: &str) -> Result<(), Error> {
    unit_of(name).map(|_| ()).ok_or_else(|| no_field(name, name))
}

fn unit_of(field: &str) -> Option<&'static str> {
    let plain = field.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let unit = field.rsplit_once('_').and_then(|(_, last)| UNITS.into_iter().find(|unit| *unit == last));
    unit.filter(|_| plain)
}

fn no_field(name: &str, field: &str) -> Error {
    let prefix = &name[..name.len() - field.len()];
    let known = FIELDS.iter().map(|field| field.name);
    Error::FeatureName {
        name: name.to_owned(),
        reason: format!("a field is lower case and ends in one of _{}", UNITS.join(" _")),
        suggestion: elastico_core::suggest(field, known).map(|near| format!("{prefix}{near}")),
    }
}

fn side_source(name: &str, rest: &str) -> Result<(SideSource, &'static str), Error> {
    if let Some(family) = rest.strip_prefix("family=") {
        return Ok((SideSource::Family(named(name, family)?), "ratio"));
    }
    if let Some(workload) = rest.strip_prefix("workload=") {
        return Ok((SideSource::Workload(named(name, workload)?), "ratio"));
    }
    match rest {
        "share_ratio" => return Ok((SideSource::Share, "ratio")),
        "partition_effect_ratio" => return Ok((SideSource::Partition, "ratio")),
        _ => {}
    }
    match unit_of(rest) {
        Some(unit) => Ok((SideSource::Field(rest.to_owned()), unit)),
        None => Err(no_field(name, rest)),
    }
}
