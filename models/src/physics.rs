//! Features of the pair that follow from the raw ones by the physics of contention.
//!
//! They are computed inside the exported graph, and here for training. Both give the same bits: only additions,
//! subtractions, products, quotients and maxima in single precision take part, which IEEE 754 fixes to the last bit. A
//! logarithm would not do: libraries differ in its last bit, and a last bit decides on which side of a tree's threshold
//! a row falls. Where a ratio of two positive quantities matters, its bounded form `a / (a + b)` stands, which orders
//! rows exactly as the logarithm of `a / b` does.

use crate::FeatureSchema;

/// Raw values are imputed, then held within these bounds, so that no formula overflows.
pub(crate) const GUARD: f32 = 1e18;
/// The least denominator of a step time, in seconds.
pub(crate) const LEAST_SECONDS: f32 = 1e-9;
/// The least denominator of a sum of shares.
pub(crate) const LEAST_SHARE: f32 = 1e-3;
/// The least denominator of a sum of rates.
pub(crate) const LEAST_HERTZ: f32 = 1e-9;
/// The least denominator of a capacity, in bytes.
pub(crate) const LEAST_BYTES: f32 = 1.0;

/// Resources of which both sides together can ask for more than 1.
const CONTENDED: [&str; 8] = [
    "kernel_active",
    "sm_active",
    "tensor_active",
    "fp32_active",
    "fp64_active",
    "l2_throughput",
    "dram_throughput",
    "copy_active",
];

/// Demands of one step that become rates, with the name of the rate.
const RATES: [(&str, &str); 5] = [
    ("step_dram_bytes", "dram_rate_bytes"),
    ("step_l2_bytes", "l2_rate_bytes"),
    ("step_copy_bytes", "copy_rate_bytes"),
    ("step_fp32_flops_total", "fp32_rate_total"),
    ("step_tensor_flops_total", "tensor_rate_total"),
];

/// Columns of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) subject: usize,
    pub(crate) co_runner: usize,
}

/// Which physics features a schema allows, and the columns they read.
///
/// With `s` and `c` for a field of the subject and the co-runner, in order of the outputs:
///
/// | feature | formula | needs |
/// |---|---|---|
/// | `R_sum_ratio` | s + c | `R_ratio` of both sides, for each contended resource R |
/// | `R_saturation_ratio` | max(s + c − 1, 0) | the same |
/// | `R_product_ratio` | s · c | the same |
/// | `SIDE_Q_rate_…` | demand of one step ÷ step time, per second | `step_Q_…` and `step_seconds` of both sides |
/// | `step_seconds_fraction_ratio` | s ÷ (s + c) of `step_seconds` | `step_seconds` of both sides |
/// | `share_fraction_ratio` | s ÷ (s + c) of `share_ratio` | `share_ratio` of both sides |
/// | `SIDE_share_excess_ratio` | max(`sm_active_ratio` − `share_ratio`, 0) | both fields of both sides |
/// | `SIDE_isolated_D_fraction_ratio` | d ÷ (d + e) of `isolated_D_hertz` and `isolated_E_hertz` of one side: how it speeds up from device to device tells what limits it | at least two devices E < D, E the first by name |
/// | `working_set_overflow_ratio` | max(s + c − l2, 0) ÷ l2 | `working_set_bytes` of both sides, `device_l2_bytes` |
///
/// A feature whose inputs are not in the schema is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhysicsSpec {
    names: Vec<String>,
    pub(crate) contended: Vec<Columns>,
    pub(crate) rates: Vec<Columns>,
    pub(crate) steps: Option<Columns>,
    pub(crate) shares: Option<Columns>,
    pub(crate) active: Option<Columns>,
    pub(crate) working_sets: Option<(Columns, usize)>,
    /// Of one side: its isolated rate on a device, and on the first device.
    pub(crate) speeds: Vec<(usize, usize)>,
}

/// The physics features that a schema allows.
pub fn physics(schema: &FeatureSchema) -> PhysicsSpec {
    let both = |field: &str| {
        Some(Columns {
            subject: schema.position(&format!("subject_{field}"))?,
            co_runner: schema.position(&format!("co_runner_{field}"))?,
        })
    };
    let mut spec = PhysicsSpec::default();
    let contended: Vec<_> = CONTENDED
        .into_iter()
        .filter_map(|r| both(&format!("{r}_ratio")).map(|columns| (r, columns)))
        .collect();
    spec.contended = contended.iter().map(|(_, columns)| *columns).collect();
    for form in ["sum", "saturation", "product"] {
        spec.names.extend(contended.iter().map(|(resource, _)| format!("{resource}_{form}_ratio")));
    }
    spec.steps = both("step_seconds");
    if spec.steps.is_some() {
        let rates: Vec<_> = RATES
            .into_iter()
            .filter_map(|(field, rate)| both(field).map(|columns| (rate, columns)))
            .collect();
        spec.rates = rates.iter().map(|(_, columns)| *columns).collect();
        for side in ["subject", "co_runner"] {
            spec.names.extend(rates.iter().map(|(rate, _)| format!("{side}_{rate}")));
        }
        spec.names.push("step_seconds_fraction_ratio".into());
    }
    spec.shares = both("share_ratio");
    if spec.shares.is_some() {
        spec.names.push("share_fraction_ratio".into());
        spec.active = both("sm_active_ratio");
        if spec.active.is_some() {
            spec.names.extend(["subject_share_excess_ratio".into(), "co_runner_share_excess_ratio".into()]);
        }
    }
    if let (Some(sets), Some(l2)) = (both("working_set_bytes"), schema.position("device_l2_bytes")) {
        spec.working_sets = Some((sets, l2));
        spec.names.push("working_set_overflow_ratio".into());
    }
    for side in ["subject", "co_runner"] {
        let mut rates: Vec<(&str, usize)> = schema
            .names()
            .iter()
            .enumerate()
            .filter_map(|(column, name)| {
                let device = name.strip_prefix(side)?.strip_prefix("_isolated_")?.strip_suffix("_hertz")?;
                Some((device, column))
            })
            .collect();
        rates.sort_unstable();
        if let Some(((_, first), others)) = rates.split_first() {
            for (device, column) in others {
                spec.names.push(format!("{side}_isolated_{device}_fraction_ratio"));
                spec.speeds.push((*column, *first));
            }
        }
    }
    spec
}

impl PhysicsSpec {
    /// No physics features: the model reads the raw ones alone.
    pub fn none() -> Self {
        Self::default()
    }

    /// Names of the features in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many features it adds to a row.
    pub fn width(&self) -> usize {
        self.names.len()
    }

    /// A raw column that each feature rises or falls with, for rows at its thresholds.
    pub(crate) fn drivers(&self) -> Vec<usize> {
        let mut drivers: Vec<_> =
            (0..3).flat_map(|_| self.contended.iter().map(|columns| columns.subject)).collect();
        drivers.extend(self.rates.iter().map(|columns| columns.subject));
        drivers.extend(self.rates.iter().map(|columns| columns.co_runner));
        drivers.extend(self.steps.map(|columns| columns.subject));
        drivers.extend(self.shares.map(|columns| columns.subject));
        drivers.extend(self.active.into_iter().flat_map(|columns| [columns.subject, columns.co_runner]));
        drivers.extend(self.working_sets.map(|(columns, _)| columns.subject));
        drivers.extend(self.speeds.iter().map(|(column, _)| *column));
        drivers
    }

    /// Appends the features of a row that is imputed and guarded; see [`prepare`].
    pub fn evaluate(&self, row: &[f32], out: &mut Vec<f32>) {
        let fraction = |Columns { subject, co_runner }, least: f32| {
            row[subject] / (row[subject] + row[co_runner]).max(least)
        };
        let sum = |Columns { subject, co_runner }: &Columns| row[*subject] + row[*co_runner];
        out.extend(self.contended.iter().map(sum));
        out.extend(self.contended.iter().map(|columns| (sum(columns) - 1.0).max(0.0)));
        out.extend(self.contended.iter().map(|columns| row[columns.subject] * row[columns.co_runner]));
        if let Some(steps) = self.steps {
            let (subject, co_runner) =
                (row[steps.subject].max(LEAST_SECONDS), row[steps.co_runner].max(LEAST_SECONDS));
            out.extend(self.rates.iter().map(|columns| row[columns.subject] / subject));
            out.extend(self.rates.iter().map(|columns| row[columns.co_runner] / co_runner));
            out.push(fraction(steps, LEAST_SECONDS));
        }
        if let Some(shares) = self.shares {
            out.push(fraction(shares, LEAST_SHARE));
            if let Some(active) = self.active {
                out.push((row[active.subject] - row[shares.subject]).max(0.0));
                out.push((row[active.co_runner] - row[shares.co_runner]).max(0.0));
            }
        }
        if let Some((sets, l2)) = &self.working_sets {
            out.push((sum(sets) - row[*l2]).max(0.0) / row[*l2].max(LEAST_BYTES));
        }
        out.extend(
            self.speeds
                .iter()
                .map(|(column, first)| row[*column] / (row[*column] + row[*first]).max(LEAST_HERTZ)),
        );
    }
}

/// Appends a raw row with NaN replaced by `impute` and held within the guard, then its physics features: what the body
/// of a model reads.
pub fn prepare(spec: &PhysicsSpec, impute: &[f32], row: &[f32], out: &mut Vec<f32>) {
    let start = out.len();
    out.extend(
        row.iter()
            .zip(impute)
            .map(|(value, median)| if value.is_nan() { *median } else { *value }.clamp(-GUARD, GUARD)),
    );
    let raw: Vec<f32> = out[start..].to_vec();
    spec.evaluate(&raw, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulae_by_hand() {
        let names = [
            "subject_sm_active_ratio",
            "co_runner_sm_active_ratio",
            "subject_step_seconds",
            "co_runner_step_seconds",
            "subject_step_dram_bytes",
            "co_runner_step_dram_bytes",
            "subject_share_ratio",
            "co_runner_share_ratio",
            "subject_working_set_bytes",
            "co_runner_working_set_bytes",
            "device_l2_bytes",
        ];
        let schema = FeatureSchema::new(&names.map(String::from)).unwrap();
        let spec = physics(&schema);
        let row = [0.75, 0.5, 2.0, f32::NAN, 8.0, 3.0, 0.25, 0.75, 60.0, 40.0, 80.0];
        let mut out = Vec::new();
        prepare(&spec, &[6.0; 11], &row, &mut out);
        assert_eq!(out[3].to_bits(), 6.0_f32.to_bits(), "a missing value takes the median");
        let named: Vec<_> = spec.names().iter().map(String::as_str).zip(out[11..].iter().copied()).collect();
        let wanted = [
            ("sm_active_sum_ratio", 1.25),
            ("sm_active_saturation_ratio", 0.25),
            ("sm_active_product_ratio", 0.375),
            ("subject_dram_rate_bytes", 4.0),
            ("co_runner_dram_rate_bytes", 0.5),
            ("step_seconds_fraction_ratio", 0.25),
            ("share_fraction_ratio", 0.25),
            ("subject_share_excess_ratio", 0.5),
            ("co_runner_share_excess_ratio", 0.0),
            ("working_set_overflow_ratio", 0.25),
        ];
        assert_eq!(named, wanted);
        assert_eq!(spec.drivers().len(), spec.width());
    }

    #[test]
    fn features_without_inputs_are_left_out() {
        let schema = FeatureSchema::new(&["subject_sm_active_ratio".to_owned()]).unwrap();
        assert_eq!(physics(&schema), PhysicsSpec::none());
        let all = physics(&FeatureSchema::standard());
        assert_eq!(all.width(), 24 + 10 + 1 + 1 + 2 + 1);
        assert_eq!(all.drivers().len(), all.width());
    }

    #[test]
    fn extreme_rows_stay_finite() {
        let schema = FeatureSchema::standard();
        let spec = physics(&schema);
        for value in [f32::MAX, f32::MIN, 0.0, -0.0, f32::MIN_POSITIVE, -1e-40] {
            let mut out = Vec::new();
            prepare(&spec, &vec![0.0; schema.width()], &vec![value; schema.width()], &mut out);
            assert!(out.iter().all(|x| x.is_finite()), "{value}: {out:?}");
        }
    }
}
