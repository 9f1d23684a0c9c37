//! Which form of correction the measurements carry.

use super::correction::{Correction, Effect, EffectVariances, Form, Probes};
use crate::Error;
use elastico_core::Seed;
use std::collections::{BTreeMap, BTreeSet};

/// What probes of new workloads tell about them, believed so far.
pub(super) const fn effects(belief: f64) -> Form {
    Form { has_line: false, belief }
}

/// What a new device needs. The line alone must be clearly better to be preferred: on Gavel's devices the choice by the error
/// of ten pairs is as often wrong as right.
pub(super) const DEVICE_FORMS: [Form; 2] =
    [Form { has_line: true, belief: 1.0 }, Form { has_line: true, belief: 0.0 }];

/// A correction with what was found out about it.
pub(super) struct Best {
    pub(super) correction: Correction,
    pub(super) form: Form,
    /// Log residuals by pair, each by a correction that had not seen the pair; empty where there was nothing to choose.
    pub(super) residuals: Vec<Vec<f64>>,
    /// MAPE of the uncorrected model on the probes, and of the correction on probes held out.
    pub(super) mape: (f64, Option<f64>),
}

/// Fits the form that does best on held-out pairs of the probes. `variances` of the offsets are estimated from what the
/// line leaves over where they are not given.
pub(super) fn best(
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
            let plain = Form { belief: 0.0, ..form };
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
            if chosen.as_ref().is_none_or(|(least, ..)| mape < 0.9 * least) {
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
