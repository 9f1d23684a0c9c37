//! Calibration of a finished model by a few measurements: of new workloads, or of a new device.
//!
//! Two to eight co-runs of a new workload with known partners give it offsets as subject and as co-runner, shrunk by how
//! much such offsets varied among held-out families. Some tens of pairs on a new device give a line through what the model
//! says there, and trees over what the line leaves over; without such pairs a model says nothing about a device that it
//! was not trained on. Either way the result is again one ONNX file.

mod card;
mod correction;
mod file;
mod form;
mod judge;

pub use correction::EffectVariances;
pub use judge::{FewShotRow, Newcomer};
pub(crate) use judge::{Rehearsal, rehearse_devices, rehearse_families};

use crate::calibrate::offset_of_groups;
use crate::evaluate::OutOfFold;
use crate::matrix::Matrix;
use crate::{Error, Examples, Groups};
use correction::{Effect, Probes};
use elastico_core::Seed;
use elastico_models::{
    Backend, Body, FeatureSchema, ModelMetadata, ModelSpec, Prior, Verification, export, load_bytes, prepare,
    verify,
};
use file::{apply, widened, with_room};
use form::{Best, DEVICE_FORMS, best, effects};
use std::collections::BTreeSet;

/// Numbers of probes that are rehearsed.
const LEVELS_OF_PROBES: [usize; 4] = [1, 2, 4, 8];
/// Fewer pairs than this on a new device are refused: an error over so few says nothing.
const LEAST_DEVICE_PAIRS: usize = 10;
/// From this many pairs on the bound is calibrated on the new rows themselves.
const ENOUGH_PAIRS: usize = 20;

/// What the exported model carries so that it can be calibrated later.
pub(crate) fn prior(examples: &Examples, held: &OutOfFold, rehearsal: Rehearsal) -> Prior {
    let variances = judge::variances(examples, held);
    Prior {
        families: examples.groups.families.clone(),
        workloads: examples.groups.workloads.clone(),
        variances: [
            ("subject_family", variances.subject_family),
            ("subject", variances.subject),
            ("co_runner_family", variances.co_runner_family),
            ("co_runner", variances.co_runner),
            ("noise", variances.noise),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        upper_offset_log_by_probes: rehearsal.upper_offset_log,
        belief_by_probes: rehearsal.belief,
    }
}

/// How to calibrate.
#[derive(Debug, Clone, Copy)]
pub struct CalibrateOptions {
    /// Seed of the residual's trees.
    pub seed: Seed,
    /// Largest size of the file.
    pub max_bytes: usize,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self { seed: Seed(0), max_bytes: 2_000_000 }
    }
}

/// A calibrated model with what is known about it.
#[derive(Debug, Clone)]
pub struct CalibratedModel {
    /// The ONNX file.
    pub onnx: Vec<u8>,
    /// What stands in the file.
    pub metadata: ModelMetadata,
    /// Whether the device is new, rather than workloads.
    pub is_new_device: bool,
    /// The new workloads, sorted; of a new device all that were measured.
    pub workloads: Vec<String>,
    /// Pairs that were learnt from.
    pub pairs_total: usize,
    /// Rows that were learnt from.
    pub rows_total: usize,
    /// MAPE of the base on these rows.
    pub mape_before: f64,
    /// MAPE on these rows, each pair by a calibration that had not seen it; absent with one pair.
    pub mape_after: Option<f64>,
    /// The bound's distance from the point in log slowdown.
    pub upper_offset_log: f64,
    /// Where the bound comes from, in words.
    pub bound: String,
    /// How closely the file and the calibration agree.
    pub verification: Verification,
    /// The card in Markdown.
    pub card: String,
}

impl CalibratedModel {
    /// Whether the calibration is known to be no better than the base on these rows: then it taught nothing.
    pub fn is_no_better(&self) -> bool {
        self.mape_after.is_some_and(|after| after >= self.mape_before)
    }
}

/// Calibrates a model that [`train`](crate::train) wrote to what `examples` measure: read them with
/// [`Examples::for_schema`] and the model's own features.
///
/// Rows of a device that the model knows give offsets to workloads that it does not know. Rows of a device that it does
/// not know calibrate it to that device, from 10 pairs on; the result then covers that device alone.
///
/// # Errors
/// [`Error::Calibrate`] where the examples and the model do not fit together, [`Error::Models`] for a file that is no model
/// of this version or whose export is not exact, [`Error::TooLarge`].
pub fn calibrate_model(
    base: &[u8],
    examples: &Examples,
    options: &CalibrateOptions,
) -> Result<CalibratedModel, Error> {
    let spec = ModelSpec::from_onnx(base)?;
    let refuse = |reason: String| Err(Error::Calibrate { reason });
    let Some(prior) = spec.metadata.prior.clone() else {
        return refuse(
            "the model was trained by a version that kept no prior for it; train it again".to_owned(),
        );
    };
    if matches!(spec.body, Body::Calibrated(_)) {
        return refuse(
            "the model is calibrated already; calibrate the original with all probes at once".to_owned(),
        );
    }
    let groups = &examples.groups;
    let [device] = &groups.devices[..] else {
        return refuse(format!(
            "the probes are of {} devices ({}), one calibration is for one",
            groups.devices.len(),
            groups.devices.join(", ")
        ));
    };
    if examples.origin.device_kinds != spec.metadata.device_kinds {
        return refuse(format!(
            "the model was trained on {} data, the probes are {}",
            words(&spec.metadata.device_kinds),
            words(&examples.origin.device_kinds)
        ));
    }
    let is_new_device = !spec.metadata.knows_device(device);
    let pairs: BTreeSet<u32> = groups.pair.iter().copied().collect();
    if is_new_device && pairs.len() < LEAST_DEVICE_PAIRS {
        return refuse(format!(
            "`{device}` is new to the model, and {} pairs on it are too few: at least {LEAST_DEVICE_PAIRS}, better 40",
            pairs.len()
        ));
    }
    if let Some(reason) = foreign(&spec.metadata, examples).filter(|_| !is_new_device) {
        return refuse(reason);
    }
    let new_workloads: BTreeSet<u32> = (0..groups.workloads.len() as u32)
        .filter(|&code| is_new_device || !prior.workloads.contains(&groups.workloads[code as usize]))
        .collect();
    let new_families: BTreeSet<u32> = (0..groups.families.len() as u32)
        .filter(|&code| is_new_device || !prior.families.contains(&groups.families[code as usize]))
        .collect();
    let touches = |row: usize| {
        new_workloads.contains(&groups.subject[row]) || new_workloads.contains(&groups.co_runner[row])
    };
    let rows: Vec<u32> = (0..examples.rows() as u32).filter(|&row| touches(row as usize)).collect();
    if rows.is_empty() {
        return refuse(
            "every workload of the probes is known to the model, there is nothing to calibrate".to_owned(),
        );
    }
    let spec = with_room(spec, base.len(), rows.len(), options.max_bytes);
    // The trees of the correction may ask for a new family, if those of the base ask for families.
    let spec = spec.with_features(&new_family_features(&spec.schema, groups, &new_families))?;
    let wide = widened(examples, &spec.schema);
    let mut features = Vec::new();
    for row in wide.chunks_exact(spec.schema.width()) {
        prepare(&spec.physics, &spec.impute, row, &mut features);
    }
    let features = Matrix::new(spec.prepared_width(), features);
    let log = spec.log_slowdown(&wide);
    let measured: Vec<f64> = examples.slowdown.iter().map(|slowdown| slowdown.ln()).collect();
    let probes = Probes { base: &log, measured: &measured, features: &features, groups };
    let is_new = |effect: Effect, code: u32| match effect {
        Effect::SubjectFamily | Effect::CoRunnerFamily => new_families.contains(&code),
        Effect::Subject | Effect::CoRunner => new_workloads.contains(&code),
    };
    let least = least_probes(examples, &new_workloads);
    let mut found = if is_new_device {
        best(&probes, &rows, &DEVICE_FORMS, None, is_new, options.seed)?
    } else {
        let given = variances_of(&prior);
        let belief =
            prior.belief_by_probes.range(..=least as u32).next_back().map_or(1.0, |(_, belief)| *belief);
        best(&probes, &rows, &[effects(belief)], Some(&given), is_new, options.seed)?
    };
    let (upper_offset_log, bound) = bound(&spec, &prior, &found, is_new_device, least);
    let (onnx_spec, onnx) = loop {
        let onnx_spec =
            apply(&spec, &found, examples, upper_offset_log, &new_workloads, is_new_device, base)?;
        let onnx = export(&onnx_spec)?;
        if onnx.len() <= options.max_bytes {
            break (onnx_spec, onnx);
        }
        // Random trees are alike: half of them say nearly the same.
        match &mut found.correction.residual {
            Some(forest) if forest.trees.len() > 1 => forest.trees.truncate(forest.trees.len() / 2),
            _ => return Err(Error::TooLarge { bytes: onnx.len(), limit: options.max_bytes }),
        }
    };
    let verification = verify(&onnx_spec, &onnx, &widened(examples, &onnx_spec.schema))?;
    let metadata = load_bytes(&onnx, Backend::Native)?.metadata().clone();
    let mut model = CalibratedModel {
        onnx,
        metadata,
        is_new_device,
        workloads: new_workloads.iter().map(|&code| groups.workloads[code as usize].clone()).collect(),
        pairs_total: rows.iter().map(|&row| groups.pair[row as usize]).collect::<BTreeSet<_>>().len(),
        rows_total: rows.len(),
        mape_before: found.mape.0,
        mape_after: found.mape.1,
        upper_offset_log,
        bound,
        verification,
        card: String::new(),
    };
    model.card = card::card(&model, examples);
    Ok(model)
}

/// Indicators of families that a model which knows families by name does not have.
fn new_family_features(schema: &FeatureSchema, groups: &Groups, new: &BTreeSet<u32>) -> Vec<String> {
    if !schema.names().iter().any(|name| name.contains("_family=")) {
        return Vec::new();
    }
    [Effect::SubjectFamily, Effect::CoRunnerFamily]
        .into_iter()
        .flat_map(|effect| new.iter().map(move |&code| effect.feature(groups, code)))
        .filter(|name| schema.position(name).is_none())
        .collect()
}

/// Why probes of new workloads would teach something else than their effects.
fn foreign(metadata: &ModelMetadata, examples: &Examples) -> Option<String> {
    let unknown = |known: &[&str], found: &[String]| -> Vec<String> {
        found.iter().filter(|name| !known.contains(&name.as_str())).cloned().collect()
    };
    let modes: Vec<&str> = metadata.sharing_modes.iter().map(String::as_str).collect();
    let modes = unknown(&modes, &examples.origin.sharing_modes);
    if !modes.is_empty() {
        return Some(format!(
            "the model knows nothing of the sharing mode {} of the probes",
            modes.join(", ")
        ));
    }
    let known: Vec<&str> = metadata.facts.get("harnesses")?.split(", ").collect();
    let harnesses = unknown(&known, &examples.groups.harnesses);
    (!harnesses.is_empty()).then(|| {
        format!(
            "the probes were measured by the harness {}, the model learnt from {}; two harnesses disagree by more than a \
             workload's offset",
            harnesses.join(", "),
            known.join(", ")
        )
    })
}

fn words(kinds: &[elastico_core::DeviceKind]) -> String {
    kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn variances_of(prior: &Prior) -> EffectVariances {
    let value = |name: &str| prior.variances.get(name).copied().unwrap_or(0.0);
    EffectVariances {
        subject_family: value("subject_family"),
        subject: value("subject"),
        co_runner_family: value("co_runner_family"),
        co_runner: value("co_runner"),
        noise: value("noise").max(1e-6),
    }
}

/// The fewest co-runs that any new workload has.
fn least_probes(examples: &Examples, new: &BTreeSet<u32>) -> usize {
    let groups = &examples.groups;
    let co_runs = |workload: u32| {
        let touching = (0..examples.rows())
            .filter(|&row| groups.subject[row] == workload || groups.co_runner[row] == workload);
        touching.map(|row| (groups.pair[row], groups.context[row])).collect::<BTreeSet<_>>().len()
    };
    new.iter().map(|&workload| co_runs(workload)).min().unwrap_or(0)
}

/// The new distance of the bound, and where it comes from.
fn bound(spec: &ModelSpec, prior: &Prior, found: &Best, is_new_device: bool, least: usize) -> (f64, String) {
    let level = spec.metadata.conformal_level;
    if is_new_device || found.residuals.len() >= ENOUGH_PAIRS {
        let pairs = found.residuals.len();
        let text = format!(
            "calibrated on {pairs} held-out pairs of these measurements; it is for pairs of these workloads"
        );
        return (offset_of_groups(&found.residuals, level), text);
    }
    let rehearsed = prior.upper_offset_log_by_probes.range(..=least as u32).next_back();
    match rehearsed {
        // More probes never widen the bound of the base.
        Some((probes, offset)) => (
            offset.min(spec.upper_offset_log),
            format!("that of held-out families after {probes} probes for each workload"),
        ),
        None => (spec.upper_offset_log, "that of the base model".to_owned()),
    }
}
