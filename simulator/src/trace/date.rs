//! Dates as logs write them.

/// Seconds since the start of 1970 of `2017-10-09 07:01:55`, with `T` for the blank, a fraction of the second, and `Z`
/// or `+08:00` where they are there.
///
/// A date without an offset is taken as written: differences within one file are right unless its clock was changed.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut parts = date.split('-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if parts.next().is_some() || !(1..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if day < 1 || day > days_of_month(year, month) {
        return None;
    }
    let (time, offset) = split_offset(time)?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.split(':');
    let (hour, minute, second) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    // A leap second is written as 60.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if fraction.is_empty() || fraction.len() > 12 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    let whole = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(whole as f64 + fraction)
}

/// The time and the seconds that its clock is ahead of universal time.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let sign = if time.as_bytes()[at] == b'-' { -1 } else { 1 };
    let (hours, minutes) = time[at + 1..].split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 23 && minutes <= 59).then_some((&time[..at], sign * (hours * 3600 + minutes * 60)))
}

fn number(text: &str) -> Option<i64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

const fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar: years that start in March put the leap day at their end (Hinnant,
/// "chrono-compatible low-level date algorithms").
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_public_logs_are_read() {
        for (text, expected) in [
            ("1970-01-01 00:00:00", 0.0),
            ("2017-10-09 07:01:55", 1_507_532_515.0),
            ("2000-02-29T23:59:59Z", 951_868_799.0),
            ("2023-03-01 00:00:17+08:00", 1_677_600_017.0),
            ("2023-02-28 16:00:17-00:00", 1_677_600_017.0),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        let fraction =
            seconds("2023-11-16 18:17:03.9799600").unwrap() - seconds("2023-11-16 18:17:03").unwrap();
        assert!((fraction - 0.979_96).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "None",
            "2017-10-09",
            "2017-13-09 07:01:55",
            "2017-02-29 00:00:00",
            "2017-10-09 24:00:00",
            "2017-10-09 07:01",
            "2017-10-09 07:01:55.",
            "2017-10-09 07:01:55+8",
            "2017-10-09 -7:01:55",
            "é-é-é é:é:é",
            "2017-10-09 07:01:55.1234567890123",
            "+017-10-09 07:01:55",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
