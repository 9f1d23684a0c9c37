//! The settings by which the configurations of a structure differ.

use elastico_core::Dtype;
use std::fmt;

/// The value of one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A size or a count.
    Integer(u64),
    /// A share or an exponent, in hundredths.
    Ratio(f64),
    /// A number format.
    Dtype(Dtype),
    /// One of a few words.
    Choice(&'static str),
}

/// Decimal thousands are shortened, so that ids stay readable: `10m`, `8k`, but `4096`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => {
                let (scaled, suffix) = [(1_000_000_000, "g"), (1_000_000, "m"), (1_000, "k")]
                    .into_iter()
                    .find(|(scale, _)| *value > 0 && value % scale == 0)
                    .map_or((*value, ""), |(scale, suffix)| (value / scale, suffix));
                f.pad(&format!("{scaled}{suffix}"))
            }
            Self::Ratio(value) => f.pad(&format!("{:.0}", value * 100.0)),
            Self::Dtype(dtype) => f.pad(dtype.as_str()),
            Self::Choice(word) => f.pad(word),
        }
    }
}

/// What an axis may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Domain {
    Integer { min: u64, max: u64 },
    Ratio { min: f64, max: f64 },
    Dtype(&'static [Dtype]),
    Choice(&'static [&'static str]),
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Ratio { min, max } => write!(f, "a number from {min} to {max} in hundredths"),
            Self::Dtype(known) => {
                let names: Vec<_> = known.iter().map(|dtype| dtype.as_str()).collect();
                write!(f, "one of {}", names.join(", "))
            }
            Self::Choice(known) => write!(f, "one of {}", known.join(", ")),
        }
    }
}

/// How the CPU-sized program derives the axis from the configured value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CpuRule {
    Keep,
    /// Halve while the step is too long or too large, not below the floor.
    Shrink(u64),
    /// As `Shrink`, and double while the step is too short.
    Scale(u64),
}

/// One setting of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The name in files.
    pub name: &'static str,
    /// The letters before the value in an id; empty for formats and words.
    pub short: &'static str,
    /// What it sets, with its unit.
    pub meaning: &'static str,
    /// The value where a file gives none; such a value is left out of the id.
    pub default: Option<Value>,
    pub(crate) domain: Domain,
    pub(crate) cpu: CpuRule,
}

impl Axis {
    pub(crate) const fn integer(
        name: &'static str,
        short: &'static str,
        meaning: &'static str,
        min: u64,
        max: u64,
    ) -> Self {
        Self { name, short, meaning, default: None, domain: Domain::Integer { min, max }, cpu: CpuRule::Keep }
    }

    pub(crate) const fn ratio(
        name: &'static str,
        short: &'static str,
        meaning: &'static str,
        (min, max): (f64, f64),
        default: f64,
    ) -> Self {
        let domain = Domain::Ratio { min, max };
        Self { name, short, meaning, default: Some(Value::Ratio(default)), domain, cpu: CpuRule::Keep }
    }

    pub(crate) const fn choice(
        name: &'static str,
        meaning: &'static str,
        known: &'static [&'static str],
    ) -> Self {
        Self { name, short: "", meaning, default: None, domain: Domain::Choice(known), cpu: CpuRule::Keep }
    }

    pub(crate) const fn dtype(known: &'static [Dtype]) -> Self {
        Self {
            name: "dtype",
            short: "",
            meaning: "format of weights and activations",
            default: None,
            domain: Domain::Dtype(known),
            cpu: CpuRule::Keep,
        }
    }

    /// With a default, so that files and ids may leave the axis out.
    pub(crate) const fn or(mut self, default: u64) -> Self {
        self.default = Some(Value::Integer(default));
        self
    }

    pub(crate) const fn or_word(mut self, default: &'static str) -> Self {
        self.default = Some(Value::Choice(default));
        self
    }

    pub(crate) const fn shrink(mut self, floor: u64) -> Self {
        self.cpu = CpuRule::Shrink(floor);
        self
    }

    pub(crate) const fn scale(mut self, floor: u64) -> Self {
        self.cpu = CpuRule::Scale(floor);
        self
    }

    /// What the axis may be, in words.
    pub fn domain(&self) -> String {
        self.domain.to_string()
    }
}

/// A value for each axis of a structure, in the order of the structure's declaration.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    values: Vec<(&'static Axis, Value)>,
}

impl Axes {
    pub(crate) fn new(values: Vec<(&'static Axis, Value)>) -> Self {
        Self { values }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static Axis, Value)> {
        self.values.iter().copied()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Value> {
        self.values.iter().find(|(axis, _)| axis.name == name).map(|(_, value)| *value)
    }

    pub(crate) fn with(&self, name: &str, value: Value) -> Self {
        let mut changed = self.clone();
        if let Some(entry) = changed.values.iter_mut().find(|(axis, _)| axis.name == name) {
            entry.1 = value;
        }
        changed
    }

    /// The value of an integer axis that the structure declares.
    pub(crate) fn integer(&self, name: &str) -> u64 {
        match self.find(name) {
            Some(Value::Integer(value)) => value,
            other => unreachable!("integer axis `{name}` is not declared by its structure: {other:?}"),
        }
    }

    /// The value of a ratio axis that the structure declares.
    pub(crate) fn ratio(&self, name: &str) -> f64 {
        match self.find(name) {
            Some(Value::Ratio(value)) => value,
            other => unreachable!("ratio axis `{name}` is not declared by its structure: {other:?}"),
        }
    }

    /// The value of a word axis that the structure declares.
    pub(crate) fn choice(&self, name: &str) -> &'static str {
        match self.find(name) {
            Some(Value::Choice(value)) => value,
            other => unreachable!("word axis `{name}` is not declared by its structure: {other:?}"),
        }
    }

    /// The format; FP32 where the structure has no such axis.
    pub(crate) fn dtype(&self) -> Dtype {
        match self.find("dtype") {
            Some(Value::Dtype(dtype)) => dtype,
            _ => Dtype::Fp32,
        }
    }

    /// The part of an id after the family: values that differ from the family's or the structure's default, in order of
    /// declaration.
    pub(crate) fn id_beside(&self, shared: &[(&'static Axis, Value)]) -> String {
        let default = |axis: &Axis| {
            let family = shared.iter().find(|(known, _)| known.name == axis.name).map(|(_, value)| *value);
            family.or(axis.default)
        };
        let parts: Vec<_> = self
            .iter()
            .filter(|(axis, value)| default(axis) != Some(*value))
            .map(|(axis, value)| format!("{}{value}", axis.short))
            .collect();
        parts.join("_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_shortened_only_where_exact() {
        for (value, text) in
            [(4096, "4096"), (8000, "8k"), (10_000_000, "10m"), (0, "0"), (1_000_000_000, "1g")]
        {
            assert_eq!(Value::Integer(value).to_string(), text);
        }
        assert_eq!(Value::Ratio(0.3).to_string(), "30");
    }
}
