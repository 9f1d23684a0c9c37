//! The answers of a session as lines of JSON.

use super::Decision;
use crate::placement::Placement;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema id of the answers of a session.
pub const SESSION_SCHEMA: &str = "elastico.session/1";

/// The answer to one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionAnswer {
    /// `elastico.session/1`.
    pub schema: String,
    /// The line of the event in the input, from 1; 0 = before the first.
    pub line: u64,
    /// `submit`, `finish`, `solve`, or what else was asked.
    pub event: String,
    /// Whether step times and slowdowns come from simulated devices.
    pub simulated: bool,
    /// The job of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Who runs, or runs otherwise than before, and who waits; absent where nothing changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// The whole placement, after `solve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Box<Placement>>,
    /// Why the event was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl SessionAnswer {
    /// An answer that says nothing yet.
    pub fn to(line: u64, event: &str) -> Self {
        Self {
            schema: SESSION_SCHEMA.to_owned(),
            line,
            event: event.to_owned(),
            simulated: false,
            job: None,
            decisions: Vec::new(),
            placement: None,
            error: None,
            hint: None,
        }
    }
}
