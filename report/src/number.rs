//! Numbers for people.

/// A ratio with as many digits as are worth reading: 1.08, 12.3, 140.
pub(crate) fn ratio(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A ratio as percent.
pub(crate) fn percent(value: f64) -> String {
    let scaled = value * 100.0;
    if scaled.abs() >= 9.95 { format!("{scaled:.0} %") } else { format!("{scaled:.1} %") }
}

/// `12,345`.
pub(crate) fn count(value: usize) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// About `wanted` round numbers that cover `low..=high`.
pub(crate) fn ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let span = (high - low).max(f64::MIN_POSITIVE);
    let rough = span / wanted.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * magnitude);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Round numbers of a logarithmic axis: powers of ten, and 1-2-5 between them where the span is short.
pub(crate) fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    if decades < 0.25 {
        // Over so short a span a logarithmic axis is nearly even.
        return ticks(low, high, 5);
    }
    let factors: &[f64] = if decades > 4.0 {
        &[1.0]
    } else if decades > 0.8 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0]
    };
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    (first..=last)
        .flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)))
        .filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001)
        .collect()
}

/// A tick's text without trailing zeros.
pub(crate) fn tick(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() >= 1e4 || value.abs() < 1e-3 {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([ratio(1.0849), ratio(12.34), ratio(140.2)], ["1.08", "12.3", "140"]);
        assert_eq!([percent(0.0312), percent(0.256)], ["3.1 %", "26 %"]);
        assert_eq!([count(7), count(1234), count(82_247)], ["7", "1,234", "82,247"]);
        assert_eq!([tick(0.0), tick(2.5), tick(0.1), tick(1e5)], ["0", "2.5", "0.1", "1e5"]);
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 0.4, 4), [0.0, 0.1, 0.2, 0.1 * 3.0, 0.4]);
        assert_eq!(ticks(1.0, 2.6, 4), [1.0, 1.5, 2.0, 2.5]);
        assert_eq!(log_ticks(1.0, 100.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(log_ticks(1.0, 2.2), [1.0, 1.2, 1.5, 2.0]);
    }
}
