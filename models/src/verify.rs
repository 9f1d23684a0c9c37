//! Proves that a file says what the trained model says.

use crate::onnx::export::OUTPUTS;
use crate::physics::prepare;
use crate::spec::Evaluation;
use crate::{Backend, Error, ModelSpec, Prediction, load_bytes};
use std::collections::BTreeSet;

/// The largest relative difference between the training side and the file.
pub const EXPORT_TOLERANCE: f64 = 1e-5;
/// Thresholds at which rows are placed; a larger forest is sampled evenly.
const MAX_THRESHOLDS: usize = 10_000;

/// What [`verify`] compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Verification {
    /// Rows given.
    pub data_rows_total: usize,
    /// Rows placed at thresholds.
    pub threshold_rows_total: usize,
    /// Largest relative difference of a slowdown or upper bound between training side and native back end.
    pub native_difference_ratio: f64,
    /// The same between native back end and ONNX Runtime; `None` where the latter is not available.
    pub ort_difference_ratio: Option<f64>,
}

/// Compares an exported file with the model that it came from: on the given rows, and on rows placed exactly at, just
/// under and just over the thresholds of its trees.
///
/// The training side is evaluated in double precision, the file with the native back end, and with ONNX Runtime where the
/// environment names its library.
///
/// # Errors
/// [`Error::Disagreement`] where a slowdown or bound differs by more than [`EXPORT_TOLERANCE`] or the domain flag
/// differs, unless the row lies so near the limit of the distance that single precision may decide either way (see
/// [`DomainDistance`](crate::DomainDistance)); otherwise what is wrong with the bytes or rows.
pub fn verify(spec: &ModelSpec, bytes: &[u8], rows: &[f32]) -> Result<Verification, Error> {
    let width = spec.schema.width();
    let native = load_bytes(bytes, Backend::Native)?;
    native.metadata().features.require(&spec.schema)?;
    native.metadata().check_rows(rows)?;
    let mut all = rows.to_vec();
    all.extend(threshold_rows(spec, rows));
    let data_rows_total = rows.len() / width;
    let place = |row: usize| if row < data_rows_total { "of the data" } else { "at a threshold" };

    let reference: Vec<_> = spec.evaluate(&all).into_iter().map(Numbers::from).collect();
    let found: Vec<_> = native.predict(&all)?.into_iter().map(Numbers::from).collect();
    let native_difference_ratio = compare("training side", &reference, "native", &found, place)?;
    let ort_difference_ratio = match load_bytes(bytes, Backend::Ort) {
        Err(Error::LibraryMissing { .. }) => None,
        Err(error @ (Error::LibraryTooOld { .. } | Error::LibraryBroken { .. })) => {
            tracing::warn!(%error, "the export is not compared with ONNX Runtime");
            None
        }
        Err(error) => return Err(error),
        Ok(ort) => {
            let other: Vec<_> = ort.predict(&all)?.into_iter().map(Numbers::from).collect();
            Some(compare("native", &found, "ort", &other, place)?)
        }
    };
    Ok(Verification {
        data_rows_total,
        threshold_rows_total: all.len() / width - data_rows_total,
        native_difference_ratio,
        ort_difference_ratio,
    })
}

/// The outputs in double precision.
struct Numbers {
    numbers: [f64; 2],
    /// `None` where single precision may decide either way.
    in_domain: Option<bool>,
}

impl Numbers {
    /// Both rows' values of each output; a flag that may be either is not compared.
    fn beside(&self, other: &Self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        let flags =
            self.in_domain.zip(other.in_domain).map(|(a, b)| [a, b].map(|flag| f64::from(u8::from(flag))));
        let numbers = self.numbers.into_iter().zip(other.numbers);
        OUTPUTS
            .into_iter()
            .zip(numbers.chain(flags.map(|[a, b]| (a, b))))
            .map(|(output, (a, b))| (output, a, b))
    }
}

impl From<Evaluation> for Numbers {
    fn from(evaluation: Evaluation) -> Self {
        Self { numbers: [evaluation.slowdown, evaluation.upper], in_domain: evaluation.in_domain }
    }
}

impl From<Prediction> for Numbers {
    fn from(prediction: Prediction) -> Self {
        Self {
            numbers: [prediction.slowdown.get(), prediction.upper.get()],
            in_domain: Some(prediction.in_domain),
        }
    }
}

fn compare(
    left: &'static str,
    left_rows: &[Numbers],
    right: &'static str,
    right_rows: &[Numbers],
    place: impl Fn(usize) -> &'static str,
) -> Result<f64, Error> {
    let mut largest = 0.0_f64;
    for (row, (left_row, right_row)) in left_rows.iter().zip(right_rows).enumerate() {
        for (output, a, b) in left_row.beside(right_row) {
            let difference = (a - b).abs() / a.abs().max(f64::MIN_POSITIVE);
            if difference > EXPORT_TOLERANCE || difference.is_nan() {
                return Err(Error::Disagreement {
                    left,
                    right,
                    row,
                    place: place(row),
                    output,
                    left_value: a,
                    right_value: b,
                    tolerance: EXPORT_TOLERANCE,
                });
            }
            largest = largest.max(difference);
        }
    }
    Ok(largest)
}

/// Rows at, just under and just over thresholds, made from the given rows in turn.
fn threshold_rows(spec: &ModelSpec, rows: &[f32]) -> Vec<f32> {
    let width = spec.schema.width();
    let forests = spec.body.forests();
    let trees = forests.iter().flat_map(|forest| &forest.trees);
    let nodes = trees.flat_map(|tree| &tree.nodes).filter(|node| !node.is_leaf());
    let distinct: BTreeSet<(u32, u32)> = nodes.map(|node| (node.feature, node.threshold.to_bits())).collect();
    let stride = distinct.len().div_ceil(MAX_THRESHOLDS).max(1);
    let drivers = spec.physics.drivers();
    let mut out = Vec::new();
    for (index, (feature, bits)) in distinct.into_iter().step_by(stride).enumerate() {
        let base = rows.chunks_exact(width).nth(index % (rows.len() / width).max(1)).unwrap_or(&spec.impute);
        let threshold = f32::from_bits(bits);
        let feature = feature as usize;
        if feature < width {
            push_variants(base, feature, [threshold.next_down(), threshold, threshold.next_up()], &mut out);
        } else if let Some(driver) = drivers.get(feature - width)
            && let Some(pair) = crossing(spec, base, feature, *driver, threshold)
        {
            push_variants(base, *driver, pair, &mut out);
        }
    }
    out
}

fn push_variants<const N: usize>(base: &[f32], column: usize, values: [f32; N], out: &mut Vec<f32>) {
    for value in values.into_iter().filter(|value| value.is_finite()) {
        let start = out.len();
        out.extend_from_slice(base);
        out[start + column] = value;
    }
}

/// Two neighbouring values of a raw column between which a physics feature crosses its threshold, by bisection.
fn crossing(
    spec: &ModelSpec,
    base: &[f32],
    feature: usize,
    driver: usize,
    threshold: f32,
) -> Option<[f32; 2]> {
    let mut row = base.to_vec();
    let mut prepared = Vec::new();
    let mut goes_left = |value: f32| {
        row[driver] = value;
        prepared.clear();
        prepare(&spec.physics, &spec.impute, &row, &mut prepared);
        prepared[feature] <= threshold
    };
    let (mut low, mut high) = (spec.domain_lower[driver], spec.domain_upper[driver]);
    let at_low = goes_left(low);
    if at_low == goes_left(high) {
        return None;
    }
    for _ in 0..200 {
        let middle = low / 2.0 + high / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if goes_left(middle) == at_low {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some([low, high])
}
