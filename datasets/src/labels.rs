//! What a row is labelled with beyond its columns: its harness, its flags, the licence of its source.

use crate::manifest::Manifest;
use crate::table::Table;
use crate::text::TextColumn;
use elastico_core::DeviceKind;
use serde::Serialize;

/// The harness of everything that this tool measured or simulated itself.
pub const OWN_HARNESS: &str = "elastico";

/// Least and greatest slowdown that a model file can hold. What lies outside is left out of training, and is refused by an
/// import: such a number comes from swapped columns or a wrong unit.
pub const SLOWDOWN_RANGE: (f64, f64) = (0.5, 1000.0);

impl Table {
    /// The harness of each row: who measured, with which protocol. It is `elastico` for our own rows, and the `source` of
    /// imported ones.
    ///
    /// Two harnesses disagree by more than the noise of each, so their numbers are not one sample: Gavel's two campaigns
    /// of the same pairs differ by 12 % to 29 % (mean absolute difference).
    pub fn harness(&self) -> TextColumn {
        let (sources, kinds) = (self.texts("source"), self.texts("device_kind"));
        let imported = kinds.code_of(DeviceKind::Imported.as_str());
        TextColumn::collect((0..self.rows()).map(|row| {
            let is_imported = imported.is_some() && kinds.code(row) == imported;
            if is_imported { sources.get(row) } else { Some(OWN_HARNESS) }
        }))
    }

    /// Whether each row carries a flag, a name of [`crate::FLAGS`] or of a mapping.
    pub fn flagged(&self, flag: &str) -> Vec<bool> {
        let flags = self.texts("flags");
        let carries: Vec<bool> =
            flags.values().iter().map(|words| words.split(';').any(|word| word == flag)).collect();
        (0..self.rows()).map(|row| flags.code(row).is_some_and(|code| carries[code as usize])).collect()
    }
}

/// Under which terms the numbers of one source stand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Licence {
    /// The source, as in the provenance.
    pub source: String,
    /// The licence in the words of the import; `none stated` where there is none, `own measurement` for our own.
    pub licence: String,
    /// Whether the numbers, or a model of them, may be given to others. An import may not unless its licence is known.
    pub may_ship: bool,
}

impl Manifest {
    /// The licence of each source, sorted by source. Imports state it as the fact `licence`; the fact `shipping` =
    /// `forbidden` keeps numbers at home whatever the licence.
    pub fn licences(&self) -> Vec<Licence> {
        let mut licences: Vec<Licence> = self
            .provenance
            .iter()
            .map(|origin| {
                let stated = origin.facts.get("licence").map(String::as_str);
                let is_own = origin.device_kind != DeviceKind::Imported;
                let forbidden = origin.facts.get("shipping").is_some_and(|fact| fact == "forbidden");
                let known = stated.is_some_and(|licence| !licence.starts_with("none"));
                Licence {
                    source: origin.source.clone(),
                    licence: stated
                        .unwrap_or(if is_own { "own measurement" } else { "none stated" })
                        .to_owned(),
                    may_ship: (is_own || known) && !forbidden,
                }
            })
            .collect();
        licences.sort();
        licences.dedup();
        licences
    }
}
