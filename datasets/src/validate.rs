//! Validation: every wrong value with its file, row, column and rule.

use crate::dataset::{Loaded, content_digest};
use crate::error::Error;
use crate::schema::{Check, Column, FLAGS};
use crate::table::{Table, Values};
use crate::text::TextColumn;
use elastico_core::{DeviceKind, Outcome, SharingMode, WorkloadId, WorkloadKind};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Findings of one rule in one column of one file that are listed; the rest are counted.
const LISTED: usize = 10;

/// One value, or several of the same kind, that break a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// The row in that file, from 0; `None` where the file as a whole is meant.
    pub row: Option<u64>,
    /// The column, or the field of the manifest.
    pub column: String,
    /// The value as it stands.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
    /// Further rows of this file that break the same rule in the same column and are not listed.
    pub more: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(row) = self.row {
            write!(f, "row {row}: ")?;
        }
        write!(f, "`{}` is {}, must be {}", self.column, self.value, self.rule)?;
        if self.more > 0 {
            write!(f, " (and {} more rows)", self.more)?;
        }
        Ok(())
    }
}

/// Checks a dataset's folder: what it says about itself, and each value of each row.
///
/// At most ten findings are listed per file, column and rule; the last of them counts the rest in
/// [`Finding::more`]. No findings means that all rules of the reference hold.
///
/// # Errors
/// What makes a dataset unreadable: no manifest, another version, a part that is missing, damaged, changed, or has
/// other columns.
pub fn validate(folder: &Path) -> Result<Vec<Finding>, Error> {
    let loaded = Loaded::read(folder)?;
    let mut findings = check_manifest(folder, &loaded);
    for (table, parts) in [(&loaded.isolated, &loaded.isolated_parts), (&loaded.pairs, &loaded.pairs_parts)] {
        let mut judge = Judge { table, parts, findings: Vec::new() };
        judge.table();
        findings.append(&mut judge.findings);
    }
    Ok(findings)
}

/// The first row of a table in memory, from 0, that breaks a rule.
pub(crate) fn first_finding(table: &Table) -> Option<(usize, Finding)> {
    let parts = [(PathBuf::new(), table.rows())];
    let mut judge = Judge { table, parts: &parts, findings: Vec::new() };
    judge.table();
    let finding = judge.findings.into_iter().next()?;
    Some((finding.row? as usize, finding))
}

fn check_manifest(folder: &Path, loaded: &Loaded) -> Vec<Finding> {
    let manifest = &loaded.manifest;
    let mut findings = Vec::new();
    let mut expect = |field: &str, stated: String, found: String| {
        if stated != found {
            findings.push(Finding {
                file: folder.join("manifest.json"),
                row: None,
                column: field.to_owned(),
                value: stated,
                rule: format!("{found}, as the parts say"),
                more: 0,
            });
        }
    };
    expect("isolated_rows", manifest.isolated_rows.to_string(), loaded.isolated.rows().to_string());
    expect("pairs_rows", manifest.pairs_rows.to_string(), loaded.pairs.rows().to_string());
    let digest = content_digest(&loaded.isolated, &loaded.pairs);
    expect("content_digest", manifest.content_digest.to_string(), digest.to_string());
    let mut kinds: Vec<&str> = [&loaded.isolated, &loaded.pairs]
        .into_iter()
        .flat_map(|table| table.texts("device_kind").values())
        .map(String::as_str)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut stated: Vec<&str> = manifest.device_kinds.iter().map(|kind| kind.as_str()).collect();
    stated.sort_unstable();
    expect("device_kinds", stated.join(", "), kinds.join(", "));
    findings
}

/// Judges one table.
struct Judge<'a> {
    table: &'a Table,
    parts: &'a [(PathBuf, usize)],
    findings: Vec<Finding>,
}

impl Judge<'_> {
    /// All rules of the table.
    fn table(&mut self) {
        self.columns();
        self.flags();
        self.ordered();
        self.times();
        if self.table.kind() == crate::TableKind::Pairs {
            self.product();
            self.trials();
        }
    }

    /// Lists the rows in which `broken` holds, up to the limit per file.
    fn rows(
        &mut self,
        column: &str,
        rule: &str,
        show: impl Fn(usize) -> String,
        mut broken: impl FnMut(usize) -> bool,
    ) {
        let mut start = 0;
        for (file, rows) in self.parts {
            let mut listed = 0;
            for row in start..start + rows {
                if !broken(row) {
                    continue;
                }
                if listed == LISTED {
                    if let Some(last) = self.findings.last_mut() {
                        last.more += 1;
                    }
                    continue;
                }
                listed += 1;
                self.findings.push(Finding {
                    file: file.clone(),
                    row: Some((row - start) as u64),
                    column: column.to_owned(),
                    value: show(row),
                    rule: rule.to_owned(),
                    more: 0,
                });
            }
            start += rows;
        }
    }

    /// Nulls, ranges and names of each column by itself.
    fn columns(&mut self) {
        let table = self.table;
        for (column, values) in table.entries() {
            if !column.nullable {
                self.rows(column.name, "present", |_| "null".to_owned(), |row| values.is_null(row));
            }
            match values {
                Values::Number(numbers) => {
                    let good = number_check(column.check);
                    let broken = |row: usize| !numbers[row].is_nan() && !good(numbers[row]);
                    self.rows(column.name, column.check.as_str(), |row| values.show(row), broken);
                }
                Values::Text(texts) => self.text(column, texts),
            }
        }
    }

    /// Texts are judged once per distinct value.
    fn text(&mut self, column: &Column, texts: &TextColumn) {
        let bad: Vec<bool> = texts.values().iter().map(|value| !is_valid(column.check, value)).collect();
        if bad.contains(&true) {
            let show = |row| format!("`{}`", texts.get(row).unwrap_or_default().escape_debug());
            let broken = |row| texts.code(row).is_some_and(|code| bad[code as usize]);
            self.rows(column.name, column.check.as_str(), show, broken);
        }
    }

    /// Each word of our own measurements is a known flag, so that a reader can look it up; imports may have theirs.
    fn flags(&mut self) {
        let flags = self.table.texts("flags");
        let is_known = |word: &str| FLAGS.iter().any(|flag| flag.name == word);
        let bad: Vec<bool> = flags.values().iter().map(|value| !value.split(';').all(is_known)).collect();
        if bad.contains(&true) {
            let show = |row| format!("`{}`", flags.get(row).unwrap_or_default().escape_debug());
            let kinds = self.table.texts("device_kind");
            let broken = |row| {
                kinds.get(row) != Some(DeviceKind::Imported.as_str())
                    && flags.code(row).is_some_and(|code| bad[code as usize])
            };
            self.rows("flags", "words of the reference, separated by `;`", show, broken);
        }
    }

    /// Lower <= point <= upper, wherever two of them are there.
    fn ordered(&mut self) {
        let table = self.table;
        let (point, lower, upper) = match table.kind() {
            crate::TableKind::Isolated => ("step_seconds", "step_lower_seconds", "step_upper_seconds"),
            crate::TableKind::Pairs => ("slowdown_ratio", "slowdown_lower_ratio", "slowdown_upper_ratio"),
        };
        for (low, high) in [(lower, point), (point, upper), (lower, upper)] {
            let (lows, highs) = (table.numbers(low), table.numbers(high));
            let show = |row: usize| format!("{} with `{high}` {}", lows[row], highs[row]);
            self.rows(low, &format!("at most `{high}`"), show, |row| lows[row] > highs[row]);
        }
    }

    /// An outcome with times has them.
    fn times(&mut self) {
        let table = self.table;
        let outcomes = table.texts("outcome");
        let has_times: Vec<bool> = outcomes
            .values()
            .iter()
            .map(|outcome| outcome.parse::<Outcome>().is_ok_and(Outcome::has_times))
            .collect();
        let timed = |row: usize| outcomes.code(row).is_some_and(|code| has_times[code as usize]);
        let show = |row: usize| format!("null with outcome {}", outcomes.get(row).unwrap_or("null"));
        match table.kind() {
            crate::TableKind::Isolated => {
                let steps = table.numbers("step_seconds");
                let excused = table.flagged("no_step_time");
                let rule = "present where the outcome has times";
                let broken = |row: usize| timed(row) && steps[row].is_nan() && !excused[row];
                self.rows("step_seconds", rule, show, broken);
            }
            crate::TableKind::Pairs => {
                let slowdowns = table.numbers("slowdown_ratio");
                let interferences = table.numbers("interference_ratio");
                let rule = "present where the outcome has times, or `interference_ratio` where the full device is unknown";
                let broken =
                    |row: usize| timed(row) && slowdowns[row].is_nan() && interferences[row].is_nan();
                self.rows("slowdown_ratio", rule, show, broken);
            }
        }
    }

    /// Slowdown is the product of its two factors.
    fn product(&mut self) {
        let slowdowns = self.table.numbers("slowdown_ratio");
        let partitions = self.table.numbers("partition_effect_ratio");
        let interferences = self.table.numbers("interference_ratio");
        let product = |row: usize| partitions[row] * interferences[row];
        let show = |row: usize| format!("{} with a product of {}", slowdowns[row], product(row));
        let rule = "`partition_effect_ratio` x `interference_ratio` within 1e-6";
        // NaN compares false: rows that lack a factor are not judged here.
        self.rows("slowdown_ratio", rule, show, |row| {
            (slowdowns[row] - product(row)).abs() > 1e-6 * slowdowns[row].abs()
        });
    }

    /// Each trial has one row per side, and the two rows mirror each other.
    fn trials(&mut self) {
        const NONE: usize = usize::MAX;
        let table = self.table;
        let trials = table.texts("trial_id");
        let sides = table.texts("side");
        let side_codes = [sides.code_of("a"), sides.code_of("b")];
        // Per trial the row of side a and of side b; a second row of one side is remembered by itself.
        let mut rows_of = vec![[NONE; 2]; trials.values().len()];
        let mut repeated = vec![false; table.rows()];
        for (row, repeated) in repeated.iter_mut().enumerate() {
            let Some(trial) = trials.code(row) else { continue };
            let Some(code) = sides.code(row) else { continue };
            let Some(side) = side_codes.iter().position(|known| *known == Some(code)) else { continue };
            let place = &mut rows_of[trial as usize][side];
            if *place == NONE {
                *place = row;
            } else {
                *repeated = true;
            }
        }
        let show = |row: usize| {
            format!("`{}` side {}", trials.get(row).unwrap_or("null"), sides.get(row).unwrap_or("null"))
        };
        self.rows("trial_id", "unique with its side", show, |row| repeated[row]);

        // The other row of the trial, for rows that are one of its two.
        let other = |row: usize| {
            let places = rows_of[trials.code(row)? as usize];
            let side = places.iter().position(|place| *place == row)?;
            Some(places[1 - side]).filter(|other| *other != NONE)
        };
        let one_sided = table.flagged("one_sided");
        let complete =
            |row: usize| trials.code(row).is_none_or(|trial| !rows_of[trial as usize].contains(&NONE));
        let show = |row: usize| format!("`{}` with one row", trials.get(row).unwrap_or("null"));
        self.rows("trial_id", "a trial of two rows, side a and side b", show, |row| {
            !complete(row) && !repeated[row] && !one_sided[row]
        });
        let show = |row: usize| format!("`{}` with two rows", trials.get(row).unwrap_or("null"));
        self.rows("flags", "without `one_sided` where both sides are there", show, |row| {
            one_sided[row] && complete(row)
        });

        // A difference is told once, at the later of the two rows.
        for column in ["pair_id", "repeat_total", "device_kind", "device", "source"] {
            let values = table.values(column);
            let show = |row: usize| values.show(row);
            self.rows(column, "equal on both sides of the trial", show, |row| {
                other(row).is_some_and(|other| other < row && !values.same(row, other))
            });
        }
        for (mine, theirs) in [
            ("subject_workload", "co_runner_workload"),
            ("subject_family", "co_runner_family"),
            ("subject_kind", "co_runner_kind"),
        ] {
            let (subjects, co_runners) = (table.texts(mine), table.texts(theirs));
            let rule = format!("`{theirs}` of the other side");
            let show = |row: usize| format!("`{}`", subjects.get(row).unwrap_or("null"));
            self.rows(mine, &rule, show, |row| {
                other(row).is_some_and(|other| subjects.get(row) != co_runners.get(other))
            });
        }
        let (subjects, co_runners) =
            (table.numbers("subject_share_ratio"), table.numbers("co_runner_share_ratio"));
        self.rows(
            "subject_share_ratio",
            "`co_runner_share_ratio` of the other side",
            |row| subjects[row].to_string(),
            |row| other(row).is_some_and(|other| (subjects[row] - co_runners[other]).abs() > 1e-9),
        );
        let sharing = table.texts("sharing");
        let modes: Vec<Option<SharingMode>> = sharing.values().iter().map(|text| text.parse().ok()).collect();
        let swapped: Vec<Option<SharingMode>> =
            modes.iter().map(|mode| mode.as_ref().map(SharingMode::swapped)).collect();
        let show = |row: usize| format!("`{}`", sharing.get(row).unwrap_or("null"));
        self.rows("sharing", "the mode of the other side, seen from this side", show, |row| {
            let Some(other) = other(row).filter(|other| *other < row) else { return false };
            let (Some(mine), Some(theirs)) = (sharing.code(row), sharing.code(other)) else { return false };
            swapped[mine as usize].is_some() && swapped[mine as usize] != modes[theirs as usize]
        });
    }
}

fn number_check(check: Check) -> fn(f64) -> bool {
    match check {
        Check::Ratio => |number| (0.0..=1.0).contains(&number),
        Check::Positive => |number| number > 0.0 && number.is_finite(),
        Check::NotNegative => |number| number >= 0.0 && number.is_finite(),
        Check::Count => |number| number >= 0.0 && number.is_finite() && number.fract() == 0.0,
        _ => f64::is_finite,
    }
}

fn is_valid(check: Check, text: &str) -> bool {
    match check {
        Check::Side => matches!(text, "a" | "b"),
        Check::WorkloadKind => text.parse::<WorkloadKind>().is_ok(),
        Check::DeviceKind => text.parse::<DeviceKind>().is_ok(),
        Check::Sharing => text.parse::<SharingMode>().is_ok(),
        Check::Outcome => text.parse::<Outcome>().is_ok(),
        // All ids follow one rule, that of the workload's.
        Check::Name => WorkloadId::new(text).is_ok(),
        _ => true,
    }
}
