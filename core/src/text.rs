//! Padding for `Display` implementations that use the precision for digits.

use std::fmt;

/// Pads `text` to the width; `Formatter::pad` would cut it to the precision.
pub(crate) fn pad(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    match (f.width(), f.align()) {
        (Some(width), Some(fmt::Alignment::Left)) => write!(f, "{text:<width$}"),
        (Some(width), Some(fmt::Alignment::Center)) => write!(f, "{text:^width$}"),
        (Some(width), _) => write!(f, "{text:>width$}"),
        (None, _) => f.write_str(text),
    }
}
