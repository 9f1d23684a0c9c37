//! Grouped folds: what a test row may not share with any training row.

use crate::Error;
use elastico_core::{Seed, Stream, suggest};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// How rows are divided into training and test. In each of them both directions and all repeats of a pair are on one
/// side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Five folds over unordered pairs of workloads, grouped over devices and shares. Flatters every model: both
    /// workloads were seen in other pairs.
    RandomPair,
    /// Each family in turn: every row that touches it is test, no training row does. The honest one for new workloads.
    UnseenFamily,
    /// Each family in turn as subject: it was never seen as a subject, but as a co-runner in other pairs.
    UnseenSubject,
    /// Each family in turn as co-runner: it was never seen as a co-runner, but as a subject in other pairs.
    UnseenCoRunner,
    /// Each device in turn.
    UnseenDevice,
}

/// One division.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// What is held out, for people.
    pub held_out: String,
    /// Rows to fit on.
    pub train: Vec<u32>,
    /// Rows to judge on.
    pub test: Vec<u32>,
}

/// Which group each row belongs to, as codes into sorted name lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// The unordered pair of workloads.
    pub pair: Vec<u32>,
    /// Code into `families`.
    pub subject_family: Vec<u32>,
    /// Code into `families`.
    pub co_runner_family: Vec<u32>,
    /// Code into `devices`.
    pub device: Vec<u32>,
    /// Code into `workloads`.
    pub subject: Vec<u32>,
    /// Code into `workloads`.
    pub co_runner: Vec<u32>,
    /// Device, sharing mode and harness together: effects of workloads are not the same in two of them.
    pub context: Vec<u32>,
    /// Code into `harnesses`; may be left empty where there is one.
    pub harness: Vec<u32>,
    /// Names of families, sorted.
    pub families: Vec<String>,
    /// Names of devices, sorted.
    pub devices: Vec<String>,
    /// Names of workloads, sorted.
    pub workloads: Vec<String>,
    /// Names of harnesses, sorted. Where there are several, each is a feature.
    pub harnesses: Vec<String>,
}

impl Split {
    /// Every split.
    pub const ALL: [Self; 5] =
        [Self::RandomPair, Self::UnseenFamily, Self::UnseenSubject, Self::UnseenCoRunner, Self::UnseenDevice];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RandomPair => "random_pair",
            Self::UnseenFamily => "unseen_family",
            Self::UnseenSubject => "unseen_subject",
            Self::UnseenCoRunner => "unseen_co_runner",
            Self::UnseenDevice => "unseen_device",
        }
    }

    /// The folds. With more than `most` families (or devices), they are dealt to `most` folds by the seed.
    ///
    /// # Errors
    /// A sentence that says why these rows cannot be divided so.
    pub fn folds(self, groups: &Groups, most: usize, seed: Seed) -> Result<Vec<Fold>, String> {
        let mut stream = seed.stream("trainer.split", &[self.as_str()]);
        let most = most.max(2);
        let folds = match self {
            Self::RandomPair => {
                let parts = deal(groups.pair.iter().copied(), 5, &mut stream);
                if parts.len() < 2 {
                    return Err(format!("{} different pair of workloads, two are needed", parts.len()));
                }
                let count = parts.len();
                parts
                    .into_iter()
                    .enumerate()
                    .map(|(index, part)| {
                        let inside = |row: usize| part.contains(&groups.pair[row]);
                        groups.fold(format!("pairs {} of {count}", index + 1), |row| !inside(row), inside)
                    })
                    .collect()
            }
            Self::UnseenFamily => {
                let parts = groups.family_parts(most, &mut stream)?;
                parts
                    .into_iter()
                    .map(|part| {
                        let inside = |row: usize| {
                            part.contains(&groups.subject_family[row])
                                || part.contains(&groups.co_runner_family[row])
                        };
                        groups.fold(label(&part, &groups.families), |row| !inside(row), inside)
                    })
                    .collect()
            }
            Self::UnseenSubject => groups.one_side(&groups.subject_family, most, &mut stream)?,
            Self::UnseenCoRunner => groups.one_side(&groups.co_runner_family, most, &mut stream)?,
            Self::UnseenDevice => {
                let parts = deal(groups.device.iter().copied(), most, &mut stream);
                if parts.len() < 2 {
                    return Err("all rows are of one device".to_owned());
                }
                parts
                    .into_iter()
                    .map(|part| {
                        let inside = |row: usize| part.contains(&groups.device[row]);
                        groups.fold(label(&part, &groups.devices), |row| !inside(row), inside)
                    })
                    .collect()
            }
        };
        let usable: Vec<Fold> = Vec::into_iter(folds)
            .filter(|fold: &Fold| !fold.train.is_empty() && !fold.test.is_empty())
            .collect();
        if usable.is_empty() { Err("no fold has both training and test rows".to_owned()) } else { Ok(usable) }
    }
}

impl Groups {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.pair.len()
    }

    /// The groups of some rows, in their order.
    #[must_use]
    pub fn subset(&self, rows: &[u32]) -> Self {
        let codes = |codes: &[u32]| rows.iter().map(|&row| codes[row as usize]).collect();
        Self {
            pair: codes(&self.pair),
            subject_family: codes(&self.subject_family),
            co_runner_family: codes(&self.co_runner_family),
            device: codes(&self.device),
            subject: codes(&self.subject),
            co_runner: codes(&self.co_runner),
            context: codes(&self.context),
            harness: if self.harness.is_empty() { Vec::new() } else { codes(&self.harness) },
            families: self.families.clone(),
            devices: self.devices.clone(),
            workloads: self.workloads.clone(),
            harnesses: self.harnesses.clone(),
        }
    }

    fn fold(&self, held_out: String, train: impl Fn(usize) -> bool, test: impl Fn(usize) -> bool) -> Fold {
        let rows = |keep: &dyn Fn(usize) -> bool| {
            (0..self.rows()).filter(|&row| keep(row)).map(|row| row as u32).collect()
        };
        Fold { held_out, train: rows(&train), test: rows(&test) }
    }

    fn family_parts(&self, most: usize, stream: &mut Stream) -> Result<Vec<BTreeSet<u32>>, String> {
        let parts = deal(self.subject_family.iter().chain(&self.co_runner_family).copied(), most, stream);
        match parts.len() {
            0 => Err("there are no rows".to_owned()),
            1 => Err(format!(
                "all rows are of one family (`{}`), so none can be held out",
                self.families.get(self.subject_family[0] as usize).map_or("", String::as_str)
            )),
            _ => Ok(parts),
        }
    }

    /// Holds out a family on one side only. The other direction of a test pair may not be in training either, so the
    /// pairs that touch the family are halved: one half is test, the other lends its opposite direction to training.
    fn one_side(&self, side: &[u32], most: usize, stream: &mut Stream) -> Result<Vec<Fold>, String> {
        let parts = self.family_parts(most, stream)?;
        let mut folds = Vec::with_capacity(parts.len() * 2);
        for part in parts {
            let touching =
                (0..self.rows()).filter(|&row| part.contains(&side[row])).map(|row| self.pair[row]);
            for half in deal(touching, 2, stream) {
                let held = |row: usize| part.contains(&side[row]);
                folds.push(self.fold(
                    label(&part, &self.families),
                    |row| !held(row) && !half.contains(&self.pair[row]),
                    |row| held(row) && half.contains(&self.pair[row]),
                ));
            }
        }
        Ok(folds)
    }
}

/// Deals distinct codes to at most `most` sets of nearly equal size, shuffled by the stream.
fn deal(codes: impl Iterator<Item = u32>, most: usize, stream: &mut Stream) -> Vec<BTreeSet<u32>> {
    let mut codes: Vec<u32> = codes.collect::<BTreeSet<_>>().into_iter().collect();
    let count = codes.len().min(most);
    if count < codes.len() {
        for index in (1..codes.len()).rev() {
            codes.swap(index, stream.random_range(0..=index));
        }
    }
    let mut parts = vec![BTreeSet::new(); count];
    for (index, code) in codes.into_iter().enumerate() {
        parts[index % count].insert(code);
    }
    parts
}

fn label(part: &BTreeSet<u32>, names: &[String]) -> String {
    let names: Vec<&str> =
        part.iter().filter_map(|code| names.get(*code as usize)).map(String::as_str).collect();
    names.join(", ")
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Split {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.map(Self::as_str);
        Self::ALL.into_iter().find(|split| split.as_str() == text).ok_or_else(|| Error::Unknown {
            what: "split",
            name: text.to_owned(),
            suggestion: suggest(text, known),
            known: known.join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rows as (subject workload, co-runner workload, device), both directions; three workloads to a family.
    fn groups(rows: &[(u32, u32, u32)]) -> Groups {
        let mut groups = Groups {
            families: (0..8).map(|index| format!("family_{index}")).collect(),
            devices: (0..4).map(|index| format!("device_{index}")).collect(),
            workloads: (0..24).map(|index| format!("workload_{index}")).collect(),
            ..Groups::default()
        };
        for &(subject, co_runner, device) in rows {
            for (subject, co_runner) in [(subject, co_runner), (co_runner, subject)] {
                groups.pair.push(subject.min(co_runner) * 100 + subject.max(co_runner));
                groups.subject_family.push(subject / 3);
                groups.co_runner_family.push(co_runner / 3);
                groups.device.push(device);
                groups.subject.push(subject);
                groups.co_runner.push(co_runner);
                groups.context.push(device);
            }
        }
        groups
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
        #[test]
        fn nothing_held_out_leaks(
            rows in proptest::collection::vec((0_u32..24, 0_u32..24, 0_u32..4), 1..60),
            most in 2_usize..10,
            seed in any::<u64>(),
        ) {
            let groups = groups(&rows);
            for split in Split::ALL {
                let Ok(folds) = split.folds(&groups, most, Seed(seed)) else { continue };
                prop_assert_eq!(&folds, &split.folds(&groups, most, Seed(seed)).unwrap());
                for fold in &folds {
                    let of = |codes: &[u32], rows: &[u32]| -> BTreeSet<u32> {
                        rows.iter().map(|row| codes[*row as usize]).collect()
                    };
                    let clean = |codes: &[u32]| of(codes, &fold.train).is_disjoint(&of(codes, &fold.test));
                    if split != Split::UnseenDevice {
                        prop_assert!(clean(&groups.pair), "{} leaks a pair", split);
                    }
                    match split {
                        Split::RandomPair => {}
                        Split::UnseenFamily => {
                            let held: BTreeSet<&str> = fold.held_out.split(", ").collect();
                            let code = |name: &str| held.contains(name);
                            for row in &fold.train {
                                let row = *row as usize;
                                prop_assert!(!code(&groups.families[groups.subject_family[row] as usize]));
                                prop_assert!(!code(&groups.families[groups.co_runner_family[row] as usize]));
                            }
                            for row in &fold.test {
                                let row = *row as usize;
                                prop_assert!(code(&groups.families[groups.subject_family[row] as usize])
                                    || code(&groups.families[groups.co_runner_family[row] as usize]));
                            }
                        }
                        Split::UnseenSubject => prop_assert!(clean(&groups.subject_family)),
                        Split::UnseenCoRunner => prop_assert!(clean(&groups.co_runner_family)),
                        Split::UnseenDevice => prop_assert!(clean(&groups.device)),
                    }
                }
                if split == Split::RandomPair {
                    let tested: usize = folds.iter().map(|fold| fold.test.len()).sum();
                    prop_assert_eq!(tested, groups.rows());
                }
            }
        }
    }

    #[test]
    fn too_little_is_refused_with_a_reason() {
        let one_family = groups(&[(0, 1, 0), (1, 2, 0)]);
        let reason = Split::UnseenFamily.folds(&one_family, 20, Seed(1)).unwrap_err();
        assert!(reason.contains("one family (`family_0`)"), "{reason}");
        assert!(Split::RandomPair.folds(&one_family, 20, Seed(1)).is_ok());
        assert!(Split::UnseenDevice.folds(&one_family, 20, Seed(1)).is_err());
        assert!(Split::RandomPair.folds(&groups(&[(0, 1, 0)]), 20, Seed(1)).is_err());
        assert!(Split::UnseenFamily.folds(&Groups::default(), 20, Seed(1)).is_err());
    }

    #[test]
    fn a_mistyped_name_gets_a_suggestion() {
        let error = "unseen_famly".parse::<Split>().unwrap_err();
        assert_eq!(error.to_string(), "there is no split `unseen_famly`, did you mean `unseen_family`?");
    }
}
