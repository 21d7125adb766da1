//! Sizes and times as people write them, both ways.
//!
//! What [`exact_bytes`] and [`exact_duration`] print, the parsers read back without a
//! difference; [`human_bytes`] rounds, for tables.

use std::time::Duration;

/// Why a size or a time cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No number at its start.
    #[error("`{text}` does not start with a number; write for example {example}")]
    NoNumber {
        /// What was given.
        text: String,
        /// What would do.
        example: &'static str,
    },
    /// No such unit.
    #[error("`{unit}` in `{text}` is not a unit; known are {known}")]
    UnknownUnit {
        /// What was given.
        text: String,
        /// The part that should be a unit.
        unit: String,
        /// What would do.
        known: &'static str,
    },
    /// A time without a unit.
    #[error("`{text}` has no unit; write {text}s for seconds, or another of {known}")]
    NoUnit {
        /// What was given.
        text: String,
        /// What would do.
        known: &'static str,
    },
    /// More than can be held.
    #[error("`{text}` is too large")]
    TooLarge {
        /// What was given.
        text: String,
    },
    /// A part of the smallest unit.
    #[error("`{text}` is not a whole number of {smallest}")]
    NotWhole {
        /// What was given.
        text: String,
        /// The smallest unit.
        smallest: &'static str,
    },
}

/// Names and factors; of one factor, the first is the one that is printed.
type Units = &'static [(&'static str, u64)];

const BYTES: Units = &[
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("KB", 1000),
    ("B", 1),
];
const KNOWN_BYTES: &str = "B, kB, MB, GB, TB, KiB, MiB, GiB and TiB";

const NANOS: Units = &[
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];
const KNOWN_TIMES: &str = "ns, us, ms, s, m and h";

/// Reads a size: plain bytes, or a number with a unit, such as `64KiB` or `1.5MB`. Capitals do
/// not matter.
///
/// # Errors
/// When it is no number with a known unit, no whole number of bytes, or beyond `u64`.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text, "64KiB or 1.5MB")?;
    let factor = match unit {
        "" => 1,
        _ => factor(BYTES, unit, text, KNOWN_BYTES, str::eq_ignore_ascii_case)?,
    };
    times(number, factor, text, "bytes")
}

/// Reads a time: a number with a unit, such as `10s`, `500ms` or `1.5h`.
///
/// # Errors
/// When it is no number with a known unit, no whole number of nanoseconds, or beyond 584 years.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text, "10s or 500ms")?;
    if unit.is_empty() {
        return Err(UnitError::NoUnit { text: text.trim().to_owned(), known: KNOWN_TIMES });
    }
    let factor = factor(NANOS, unit, text, KNOWN_TIMES, |known, unit| known == unit)?;
    times(number, factor, text, "nanoseconds").map(Duration::from_nanos)
}

/// Prints a size without rounding, in the largest binary unit that divides it: `64KiB`.
pub fn exact_bytes(bytes: u64) -> String {
    let binary = BYTES.iter().copied().filter(|(_, factor)| factor.is_power_of_two());
    exact(bytes, binary)
}

/// Prints a time without rounding, in the largest unit that divides it: `500ms`. Times beyond
/// 584 years are cut.
pub fn exact_duration(duration: Duration) -> String {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match nanos {
        0 => "0s".to_owned(),
        _ => exact(nanos, NANOS.iter().copied()),
    }
}

/// The units of sizes for people.
pub(crate) const HUMAN_UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// The word for so many of a thing.
pub(crate) const fn plural(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Prints a size for people: three digits and a binary unit, `6.25 KiB`; below 1 KiB exact.
pub fn human_bytes(bytes: u64) -> String {
    human_bytes_f64(bytes as f64)
}

/// As [`human_bytes`], for a difference.
pub fn human_change(bytes: i64) -> String {
    human_bytes_f64(bytes as f64)
}

/// As [`human_bytes`], for an estimate; negative ones keep their sign. Parts of a byte are
/// shown below 10 bytes.
pub fn human_bytes_f64(bytes: f64) -> String {
    let mut size = bytes.abs();
    let mut unit = 0;
    // 1023.5 rounds to 1024, which is the next unit's one.
    while 1023.5 <= size && unit + 1 < HUMAN_UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let sign = if bytes < 0.0 { "-" } else { "" };
    let decimals = match size {
        _ if size.fract() == 0.0 && unit == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{sign}{size:.decimals$} {}", HUMAN_UNITS[unit])
}

fn exact(value: u64, mut units: impl Iterator<Item = (&'static str, u64)>) -> String {
    let fits = |(_, factor): &(&str, u64)| 0 < value && value.is_multiple_of(*factor);
    match units.find(fits) {
        Some(("B", _)) | None => value.to_string(),
        Some((name, factor)) => format!("{}{name}", value / factor),
    }
}

/// A decimal number as its digits and how many of them stand behind the point.
#[derive(Clone, Copy)]
struct Number {
    digits: u128,
    decimals: u32,
}

fn split<'a>(text: &'a str, example: &'static str) -> Result<(Number, &'a str), UnitError> {
    let trimmed = text.trim();
    let end =
        trimmed.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let no_number = || UnitError::NoNumber { text: text.to_owned(), example };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.contains('.') || (number.contains('.') && part.is_empty()) {
        return Err(no_number());
    }
    let part = part.trim_end_matches('0');
    let too_large = || UnitError::TooLarge { text: text.to_owned() };
    let digits = format!("{whole}{part}").parse().map_err(|_| too_large())?;
    let decimals = u32::try_from(part.len()).map_err(|_| too_large())?;
    Ok((Number { digits, decimals }, unit.trim_start()))
}

fn factor(
    units: Units,
    unit: &str,
    text: &str,
    known: &'static str,
    same: impl Fn(&'static str, &str) -> bool,
) -> Result<u64, UnitError> {
    units.iter().find(|(name, _)| same(name, unit)).map(|(_, factor)| *factor).ok_or_else(|| {
        UnitError::UnknownUnit { text: text.to_owned(), unit: unit.to_owned(), known }
    })
}

fn times(
    number: Number,
    factor: u64,
    text: &str,
    smallest: &'static str,
) -> Result<u64, UnitError> {
    let too_large = || UnitError::TooLarge { text: text.to_owned() };
    let not_whole = || UnitError::NotWhole { text: text.to_owned(), smallest };
    let scaled = number.digits.checked_mul(factor.into()).ok_or_else(too_large)?;
    let divisor = 10_u128.checked_pow(number.decimals).ok_or_else(not_whole)?;
    if !scaled.is_multiple_of(divisor) {
        return Err(not_whole());
    }
    u64::try_from(scaled / divisor).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64kib", 65_536),
            ("1.5MiB", 1_572_864),
            ("10MB", 10_000_000),
            ("10 kB", 10_000),
            (" 7B ", 7),
            ("0.5KiB", 512),
            ("1.50kB", 1500),
            ("5GiB", 5_368_709_120),
            ("4TiB", 4_398_046_511_104),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn times_are_read() {
        for (text, millis) in
            [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000), ("1.5s", 1500)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let size = |text| parse_bytes(text).expect_err("not a size").to_string();
        let time = |text| parse_duration(text).expect_err("not a time").to_string();
        assert_eq!(
            size("lots"),
            "`lots` does not start with a number; write for example 64KiB or 1.5MB"
        );
        assert_eq!(
            size("-1"),
            "`-1` does not start with a number; write for example 64KiB or 1.5MB"
        );
        assert_eq!(
            size("3 sessions"),
            "`sessions` in `3 sessions` is not a unit; known are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB"
        );
        assert_eq!(size("1.7"), "`1.7` is not a whole number of bytes");
        assert_eq!(size("1.2.3MB"), size("1.2.3MB"));
        assert_eq!(size("99999999TiB"), "`99999999TiB` is too large");
        assert_eq!(
            time("10"),
            "`10` has no unit; write 10s for seconds, or another of ns, us, ms, s, m and h"
        );
        assert_eq!(
            time("5 years"),
            "`years` in `5 years` is not a unit; known are ns, us, ms, s, m and h"
        );
        assert_eq!(time("99999999h"), "`99999999h` is too large");
    }

    #[test]
    fn people_get_three_digits() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (512.0, "512 B"),
            (1023.0, "1023 B"),
            (1024.0, "1.00 KiB"),
            (6400.0, "6.25 KiB"),
            (65_536.0, "64.0 KiB"),
            (1_048_575.0, "1.00 MiB"),
            (21_474_836_480.0, "20.0 GiB"),
            (-150.0, "-150 B"),
            (2.5, "2.50 B"),
            (2_f64.powi(62), "4.00 EiB"),
            (2_f64.powi(80), "1048576 EiB"),
        ] {
            assert_eq!(human_bytes_f64(bytes), text);
        }
        assert_eq!(human_change(i64::MIN), "-8.00 EiB");
    }

    proptest! {
        #[test]
        fn sizes_survive_the_round(bytes in prop_oneof![any::<u64>(), 0_u64..5000]) {
            prop_assert_eq!(parse_bytes(&exact_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn sizes_in_whole_units_survive_the_round(count in 0_u64..1000, shift in 0_u32..5) {
            let bytes = count << (10 * shift);
            prop_assert_eq!(parse_bytes(&exact_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn times_survive_the_round(nanos in prop_oneof![any::<u64>(), 0_u64..5000]) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&exact_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = (parse_bytes(&text), parse_duration(&text));
        }
    }
}
