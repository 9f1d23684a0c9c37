//! What tells two feature lists apart.

use serde::Serialize;
use std::fmt;

/// How two feature lists differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaDifference {
    /// Wanted, but absent.
    pub missing: Vec<String>,
    /// Present, but not wanted.
    pub extra: Vec<String>,
    /// Present and wanted, but at another place among the common ones.
    pub reordered: Vec<String>,
}

impl fmt::Display for SchemaDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let parts = [("missing", &self.missing), ("extra", &self.extra), ("reordered", &self.reordered)];
        let mut separator = "";
        for (label, names) in parts.into_iter().filter(|(_, names)| !names.is_empty()) {
            write!(f, "{separator}{label} {}", names[..names.len().min(SHOWN)].join(", "))?;
            if names.len() > SHOWN {
                write!(f, " and {} more", names.len() - SHOWN)?;
            }
            separator = "; ";
        }
        Ok(())
    }
}
