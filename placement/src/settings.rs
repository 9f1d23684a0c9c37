//! What a shape asks the user's entry point to be started with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a setting is a truth value, a number or a text")]
pub enum Setting {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl From<u32> for Setting {
    fn from(number: u32) -> Self {
        Self::Integer(i64::from(number))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

/// Settings by name: environment variables or arguments that the entry point already reads, so that a scheduler can
/// start the job in its shape without a change to its code.
pub type Settings = BTreeMap<String, Setting>;

/// Names of the settings that the families `batch` and `goodput` choose. An empty name leaves the setting out, for an entry
/// point that does not read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SettingNames {
    /// Sequences in flight of inference.
    pub batch: String,
    /// GPUs over which a model is split.
    pub tensor_parallel: String,
    /// Examples of one step, over all GPUs and passes.
    pub global_batch: String,
    /// Examples of one pass on one GPU.
    pub batch_per_gpu: String,
    /// Passes of one step, 1 = no accumulation.
    pub accumulation_steps: String,
}

impl Default for SettingNames {
    fn default() -> Self {
        let name = str::to_owned;
        Self {
            batch: name("batch"),
            tensor_parallel: name("tensor_parallel"),
            global_batch: name("global_batch"),
            batch_per_gpu: name("batch_per_gpu"),
            accumulation_steps: name("accumulation_steps"),
        }
    }
}

impl SettingNames {
    /// All of them.
    pub(crate) fn all(&self) -> [&str; 5] {
        [
            &self.batch,
            &self.tensor_parallel,
            &self.global_batch,
            &self.batch_per_gpu,
            &self.accumulation_steps,
        ]
    }
}

/// Sets a chosen value, where the entry point reads it.
pub(crate) fn choose(settings: &mut Settings, name: &str, value: u32) {
    if !name.is_empty() {
        settings.insert(name.to_owned(), value.into());
    }
}

/// `name=value` of all, in the order of the names.
pub(crate) fn in_words(settings: &Settings) -> String {
    settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}
