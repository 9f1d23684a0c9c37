//! Calibration of a finished model by a few measurements: of new workloads, or of a new device.
//!
//! Two to eight co-runs of a new workload with known partners give it offsets as subject and as co-runner, shrunk by how
//! much such offsets varied among held-out families. Some tens of pairs on a new device give a line through what the model
//! says there, and trees over what the line leaves over; without such pairs a model says nothing about a device that it
//! was not trained on. Either way the result is again one ONNX file.

mod card;
mod correction;
mod judge;

pub use correction::EffectVariances;
pub use judge::{FewShotRow, Newcomer};
pub(crate) use judge::{Rehearsal, rehearse_devices, rehearse_families};

use crate::calibrate::offset_of_groups;
use crate::evaluate::OutOfFold;
use crate::matrix::Matrix;
use crate::{Error, Examples};
use correction::{Correction, Effect, Form, Probes};
use elastico_core::{Digest, Seed};
use elastico_models::{
    Backend, Body, Calibrated, FeatureSchema, ModelMetadata, ModelSpec, Prior, Verification, export,
    load_bytes, prepare, verify,
};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of probes that are rehearsed.
const LEVELS_OF_PROBES: [usize; 4] = [1, 2, 4, 8];
/// Fewer pairs than this on a new device are refused: an error over so few says nothing.
const LEAST_DEVICE_PAIRS: usize = 10;
/// From this many pairs on the bound is calibrated on the new rows themselves.
const ENOUGH_PAIRS: usize = 20;

/// Offsets alone: all that a handful of probes can carry.
fn offsets_only() -> Form {
    Form { is_scaled: false, is_shifted: false, has_offsets: true, has_residual: false }
}

/// What a new device may need, the plainest first.
fn device_forms() -> [Form; 4] {
    let line = Form { is_scaled: true, is_shifted: true, has_offsets: false, has_residual: false };
    [
        Form { is_scaled: false, ..line },
        Form { has_offsets: true, ..line },
        Form { has_residual: true, ..line },
        Form { has_offsets: true, has_residual: true, ..line },
    ]
}

/// A correction with what was found out about it.
struct Best {
    correction: Correction,
    form: Form,
    /// Log residuals by pair, each by a correction that had not seen the pair; empty where there was nothing to choose.
    residuals: Vec<Vec<f64>>,
    /// MAPE of the uncorrected model on the probes, and of the correction on probes held out.
    mape: (f64, Option<f64>),
}

/// Fits the form that does best on held-out pairs of the probes. `variances` of the offsets are estimated from what the
/// line leaves over where they are not given.
fn best(
    probes: &Probes<'_>,
    rows: &[u32],
    forms: &[Form],
    variances: Option<&EffectVariances>,
    is_new: impl Fn(Effect, u32) -> bool + Copy,
    seed: Seed,
) -> Result<Best, Error> {
    let error = |rows: &[u32], predict: &dyn Fn(usize) -> f64| {
        let sum: f64 = rows
            .iter()
            .map(|&row| ((predict(row as usize) - probes.measured[row as usize]).exp() - 1.0).abs())
            .sum();
        sum / rows.len().max(1) as f64
    };
    let fit = |rows: &[u32], form: Form| {
        let own = || {
            let plain = Form { has_offsets: false, has_residual: false, ..form };
            let line = Correction::fit(probes, rows, plain, &EffectVariances::default(), |_, _| false, seed)?;
            let left: Vec<f64> = rows
                .iter()
                .map(|&row| probes.measured[row as usize] - line.predict(probes, row as usize))
                .collect();
            Ok::<_, Error>(EffectVariances::estimate(probes.groups, rows, &left, |_, _| true))
        };
        let variances = match variances {
            Some(given) => *given,
            None => own()?,
        };
        Correction::fit(probes, rows, form, &variances, is_new, seed)
    };
    let before = error(rows, &|row| probes.base[row]);
    let pairs: Vec<u32> = rows
        .iter()
        .map(|&row| probes.groups.pair[row as usize])
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let folds = pairs.len().min(if pairs.len() < 20 { 20 } else { 10 });
    let mut chosen: Option<(f64, Form, Vec<Vec<f64>>)> = None;
    if folds >= 2 {
        for &form in forms {
            let mut residuals: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            let mut sum = 0.0;
            for fold in 0..folds {
                let held = |row: &u32| {
                    pairs
                        .binary_search(&probes.groups.pair[*row as usize])
                        .is_ok_and(|index| index % folds == fold)
                };
                let (test, train): (Vec<u32>, Vec<u32>) = rows.iter().copied().partition(held);
                let correction = fit(&train, form)?;
                sum += error(&test, &|row| correction.predict(probes, row)) * test.len() as f64;
                for &row in &test {
                    let left = probes.measured[row as usize] - correction.predict(probes, row as usize);
                    residuals.entry(probes.groups.pair[row as usize]).or_default().push(left);
                }
            }
            let mape = sum / rows.len() as f64;
            // Of equals the plainer: it must be beaten by more than a hair.
            if chosen.as_ref().is_none_or(|(least, ..)| mape < 0.99 * least) {
                chosen = Some((mape, form, residuals.into_values().collect()));
            }
        }
    }
    let (after, form, residuals) = match chosen {
        Some((mape, form, residuals)) => (Some(mape), form, residuals),
        None => (None, forms[0], Vec::new()),
    };
    Ok(Best { correction: fit(rows, form)?, form, residuals, mape: (before, after) })
}

/// What the exported model carries so that it can be calibrated later.
pub(crate) fn prior(examples: &Examples, held: &OutOfFold, upper_offset_log: BTreeMap<u32, f64>) -> Prior {
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
        upper_offset_log_by_probes: upper_offset_log,
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
    let mut features = Vec::new();
    for row in 0..examples.rows() {
        prepare(&spec.physics, &spec.impute, examples.row(row), &mut features);
    }
    let features = Matrix::new(spec.prepared_width(), features);
    let log = spec.log_slowdown(&examples.features);
    let measured: Vec<f64> = examples.slowdown.iter().map(|slowdown| slowdown.ln()).collect();
    let probes = Probes { base: &log, measured: &measured, features: &features, groups };
    let is_new = |effect: Effect, code: u32| match effect {
        Effect::SubjectFamily | Effect::CoRunnerFamily => new_families.contains(&code),
        Effect::Subject | Effect::CoRunner => new_workloads.contains(&code),
    };
    let mut found = if is_new_device {
        best(&probes, &rows, &device_forms(), None, is_new, options.seed)?
    } else {
        let given = variances_of(&prior);
        best(&probes, &rows, &[offsets_only()], Some(&given), is_new, options.seed)?
    };
    let least = least_probes(examples, &new_workloads);
    let (upper_offset_log, bound) = bound(&spec, &prior, &found, is_new_device, least);
    let (onnx_spec, onnx) = loop {
        let onnx_spec = apply(&spec, &found, examples, upper_offset_log, is_new_device, base)?;
        let onnx = export(&onnx_spec)?;
        if onnx.len() <= options.max_bytes {
            break (onnx_spec, onnx);
        }
        // The base may fill its file already. Random trees are alike: half of them say nearly the same.
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

/// The calibrated model before it becomes a file.
fn apply(
    spec: &ModelSpec,
    found: &Best,
    examples: &Examples,
    upper_offset_log: f64,
    is_new_device: bool,
    base: &[u8],
) -> Result<ModelSpec, Error> {
    let groups = &examples.groups;
    let correction = &found.correction;
    let wanted: BTreeMap<String, f64> = correction
        .offsets
        .iter()
        .map(|((effect, code), offset)| (effect.feature(groups, *code), *offset))
        .collect();
    let extra: Vec<String> =
        wanted.keys().filter(|name| spec.schema.position(name).is_none()).cloned().collect();
    let added = extra.len();
    let width = spec.schema.width();
    let mut wide = spec.with_features(&extra)?;
    let offsets = wanted
        .iter()
        .filter_map(|(name, offset)| Some((wide.schema.position(name)? as u32, *offset)))
        .collect();
    let residual = correction.residual.clone().map(|mut forest| {
        // The trees were grown over rows without the new columns.
        for node in forest.trees.iter_mut().flat_map(|tree| &mut tree.nodes) {
            if !node.is_leaf() && node.feature as usize >= width {
                node.feature += added as u32;
            }
        }
        forest
    });
    wide.body = Body::Calibrated(Box::new(Calibrated {
        base: wide.body,
        scale: correction.scale,
        shift: correction.shift,
        offsets,
        residual,
    }));
    wide.upper_offset_log = upper_offset_log;
    if is_new_device {
        // What the model knew of others says nothing here: the domain is that of the new measurements.
        let domain = elastico_models::fit_domain(&examples.features, width)?;
        wide.domain_lower[..width].copy_from_slice(&domain.lower);
        wide.domain_upper[..width].copy_from_slice(&domain.upper);
        for (have, seen) in wide.domain_missing[..width].iter_mut().zip(domain.missing) {
            *have = seen;
        }
        wide.domain_distance = None;
        wide.metadata.devices.clone_from(&groups.devices);
        wide.metadata.sharing_modes.clone_from(&examples.origin.sharing_modes);
    } else {
        for column in 0..width {
            let values =
                (0..examples.rows()).map(|row| examples.row(row)[column]).filter(|value| value.is_finite());
            for value in values {
                wide.domain_lower[column] = wide.domain_lower[column].min(value);
                wide.domain_upper[column] = wide.domain_upper[column].max(value);
            }
        }
        // The probes were measured: rows of their workloads are near.
        wide.domain_distance = wide.domain_distance.take().map(|distance| {
            let far = distance
                .distances(&widened(examples, &wide.schema))
                .into_iter()
                .fold(distance.limit(), f32::max);
            distance.with_limit(far * 1.01)
        });
    }
    // Scores and coverage are the base's; what is known of the calibrated model stands in the facts.
    wide.metadata.scores.clear();
    wide.metadata.achieved_coverage = None;
    let mut fact = |name: &str, value: String| wide.metadata.facts.insert(name.to_owned(), value);
    fact("calibrated_from", Digest::of([base]).to_string());
    fact("calibrated_on", examples.origin.digest.to_string());
    fact("calibration_rows", examples.rows().to_string());
    fact("calibration_mape_before", format!("{:.4}", found.mape.0));
    if let Some(after) = found.mape.1 {
        fact("calibration_mape_after", format!("{after:.4}"));
    }
    fact("calibration_form", form_words(found.form));
    let kept = examples.origin.licences.iter().filter(|source| !source.may_ship);
    let kept: Vec<&str> = kept.map(|source| source.source.as_str()).collect();
    if !kept.is_empty() {
        let known = wide
            .metadata
            .facts
            .get("shipping")
            .map_or("forbidden by".to_owned(), |known| format!("{known},"));
        wide.metadata.facts.insert("shipping".to_owned(), format!("{known} {}", kept.join(", ")));
    }
    Ok(wide)
}

fn form_words(form: Form) -> String {
    let parts = [
        (form.is_scaled, "factor"),
        (form.is_shifted, "shift"),
        (form.has_offsets, "offsets"),
        (form.has_residual, "trees"),
    ];
    parts.into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect::<Vec<_>>().join(", ")
}

/// Rows of the examples with the columns of the calibrated model: 1 for the workload or family of the row.
fn widened(examples: &Examples, schema: &FeatureSchema) -> Vec<f32> {
    let groups = &examples.groups;
    let width = examples.schema.width();
    let mut rows = Vec::with_capacity(examples.rows() * schema.width());
    for row in 0..examples.rows() {
        rows.extend_from_slice(examples.row(row));
        rows.extend(schema.names()[width..].iter().map(|name| {
            let is = Effect::ALL
                .into_iter()
                .any(|effect| effect.feature(groups, effect.code(groups, row)) == *name);
            f32::from(u8::from(is))
        }));
    }
    rows
}
