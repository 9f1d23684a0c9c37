//! Which features vary, and how a row is put together from parts that are looked up once.

use crate::Error;
use crate::examples::{Resolved, ResolvedRows};
use crate::profiles::Isolated;
use elastico_models::{FIELDS, FeatureSchema, Side};
use std::collections::{BTreeMap, BTreeSet};

/// Every feature that this dataset could have, before those that never vary are dropped.
pub(crate) fn candidates(isolated: &Isolated, identities: bool) -> Result<FeatureSchema, Error> {
    let standard = FeatureSchema::standard();
    let mut families = BTreeSet::new();
    if identities {
        families.extend(isolated.profiles.iter().map(|profile| profile.family.as_str()));
    }
    let mut names = Vec::new();
    for side in ["subject", "co_runner"] {
        names.extend(FIELDS.iter().map(|field| format!("{side}_{}", field.name)));
        names.extend(isolated.speeds.iter().map(|speed| format!("{side}_{speed}")));
        names.push(format!("{side}_share_ratio"));
        names.push(format!("{side}_partition_effect_ratio"));
        names.extend(families.iter().map(|family| format!("{side}_family={family}")));
    }
    let sided = |name: &str| name.starts_with("subject_") || name.starts_with("co_runner_");
    names.extend(standard.names().iter().filter(|name| !sided(name)).cloned());
    Ok(FeatureSchema::new(&names)?)
}

/// Parts of rows: values of each side by profile and sharing mode, and of each device and sharing mode.
pub(crate) struct Encoder {
    schema: FeatureSchema,
    subject: Part,
    co_runner: Part,
    context: Part,
}

/// Values by two codes, dense: the second code runs over the few sharing modes.
#[derive(Default)]
struct Part {
    width: usize,
    seconds: usize,
    /// Offset into `values` plus 1; 0 where no row uses the combination.
    offsets: Vec<u32>,
    values: Vec<f32>,
}

impl Part {
    fn build(keys: &BTreeSet<(u32, u32)>, seconds: usize, value: impl Fn(u32, u32) -> Vec<f32>) -> Self {
        let firsts = keys.last().map_or(0, |(first, _)| *first as usize + 1);
        let mut part = Self { seconds, offsets: vec![0; firsts * seconds], ..Self::default() };
        for (index, (first, second)) in keys.iter().enumerate() {
            let values = value(*first, *second);
            part.width = values.len();
            part.offsets[*first as usize * seconds + *second as usize] = index as u32 + 1;
            part.values.extend(values);
        }
        part
    }

    fn get(&self, first: u32, second: u32) -> &[f32] {
        let index = self.offsets[first as usize * self.seconds + second as usize] as usize - 1;
        &self.values[index * self.width..(index + 1) * self.width]
    }

    /// Whether each column takes at least two finite values.
    fn varies(&self) -> Vec<bool> {
        (0..self.width)
            .map(|column| {
                let mut values =
                    self.values.iter().skip(column).step_by(self.width).filter(|value| value.is_finite());
                values.next().is_some_and(|first| values.any(|value| (value - first).abs() > 0.0))
            })
            .collect()
    }
}

impl Encoder {
    /// Drops the candidates that never vary over these rows, and appends features that the caller fills in.
    pub(crate) fn new(
        candidates: &FeatureSchema,
        isolated: &Isolated,
        resolved: &ResolvedRows,
        appended: &[String],
    ) -> Result<Self, Error> {
        let full = Self::build(candidates.clone(), isolated, resolved);
        let mut varies = BTreeMap::new();
        for (part, side) in
            [(&full.subject, "subject_"), (&full.co_runner, "co_runner_"), (&full.context, "")]
        {
            let sided = |name: &str| name.starts_with("subject_") || name.starts_with("co_runner_");
            let names = candidates
                .names()
                .iter()
                .filter(|name| if side.is_empty() { !sided(name) } else { name.starts_with(side) });
            varies.extend(names.zip(part.varies()));
        }
        let mut kept: Vec<String> =
            candidates.names().iter().filter(|name| varies.get(name) == Some(&true)).cloned().collect();
        if kept.is_empty() {
            return Err(Error::NoFeatures { candidates: candidates.width(), rows: resolved.rows.len() });
        }
        kept.extend(appended.iter().cloned());
        Ok(Self::build(FeatureSchema::new(&kept)?, isolated, resolved))
    }

    /// Exactly the features of the schema.
    pub(crate) fn build(schema: FeatureSchema, isolated: &Isolated, resolved: &ResolvedRows) -> Self {
        let (mut subjects, mut co_runners, mut contexts) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut previous = None;
        for row in &resolved.rows {
            if previous.replace(*row) != Some(*row) {
                subjects.insert((row.subject, row.sharing));
                co_runners.insert((row.co_runner, row.sharing));
                contexts.insert((row.device, row.sharing));
            }
        }
        let modes = resolved.sharing.len();
        let side = |keys: &BTreeSet<(u32, u32)>, side: Side| {
            Part::build(keys, modes, |profile, mode| {
                let mode = &resolved.sharing[mode as usize];
                schema.side_values(&isolated.profiles[profile as usize], side, mode)
            })
        };
        let subject = side(&subjects, Side::Subject);
        let co_runner = side(&co_runners, Side::CoRunner);
        let context = Part::build(&contexts, modes, |device, mode| {
            schema.context_values(&resolved.devices[device as usize], &resolved.sharing[mode as usize])
        });
        Self { schema, subject, co_runner, context }
    }

    pub(crate) fn schema(&self) -> &FeatureSchema {
        &self.schema
    }

    pub(crate) fn append(&self, row: &Resolved, out: &mut Vec<f32>) {
        self.schema.assemble(
            self.subject.get(row.subject, row.sharing),
            self.co_runner.get(row.co_runner, row.sharing),
            self.context.get(row.device, row.sharing),
            out,
        );
    }
}
