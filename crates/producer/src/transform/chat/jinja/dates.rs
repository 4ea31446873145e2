//! The fixed date of `strftime_now`, as Python's `strftime` writes it in the C locale.

use serde::{Deserialize, Serialize};

/// A day; its time is midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Date {
    year: i64,
    month: usize,
    day: i64,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: usize) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Date {
    /// Parses a date as `YYYY-MM-DD`; `None` when there is no such day.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |length: usize| {
            let part = parts.next()?;
            let digits = part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse::<i64>().ok()).flatten()
        };
        let year = part(4)?;
        let month = part(2)?;
        let day = part(2)?;
        let month = usize::try_from(month).ok()?;
        let valid = year > 0
            && (1..=12).contains(&month)
            && (1..=days_of(year, month)).contains(&day)
            && parts.next().is_none();
        valid.then_some(Self { year, month, day })
    }

    /// Day of the year, from 1.
    fn day_of_year(self) -> i64 {
        (1..self.month)
            .map(|month| days_of(self.year, month))
            .sum::<i64>()
            + self.day
    }

    /// Day of the week, from Sunday as 0.
    fn weekday(self) -> i64 {
        let before = self.year - 1;
        let days = before * 365 + before / 4 - before / 100 + before / 400;
        (days + self.day_of_year()) % 7
    }

    /// Year and week by ISO 8601.
    fn iso_week(self) -> (i64, i64) {
        let weekday = (self.weekday() + 6) % 7;
        let week = (self.day_of_year() - weekday + 9) / 7;
        let weeks = |year: i64| {
            let first = Self {
                year,
                month: 1,
                day: 1,
            }
            .weekday();
            if first == 4 || (first == 3 && is_leap(year)) {
                53
            } else {
                52
            }
        };
        if week < 1 {
            (self.year - 1, weeks(self.year - 1))
        } else if week > weeks(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }

    /// Returns the date in this form; the error names a directive that is not known.
    pub(super) fn strftime(self, form: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = form.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut kind = chars.next().unwrap_or('%');
            let unpadded = kind == '-';
            if unpadded {
                kind = chars.next().unwrap_or('-');
            }
            let text = self.directive(kind);
            let Some(text) = text else {
                return Err(format!(
                    "strftime_now: the directive %{kind} is not supported"
                ));
            };
            let number = text.bytes().all(|b| b.is_ascii_digit() || b == b' ');
            let short = text.trim_start_matches(['0', ' ']);
            out.push_str(match (unpadded && number, short.is_empty()) {
                (true, false) => short,
                (true, true) => "0",
                (false, _) => &text,
            });
        }
        Ok(out)
    }

    fn directive(self, kind: char) -> Option<String> {
        let weekday = self.weekday();
        let day_name = DAYS[usize::try_from(weekday).unwrap_or(0)];
        let month_name = MONTHS[self.month - 1];
        let month = self.month;
        let day = self.day;
        let year = self.year;
        let day_of_year = self.day_of_year();
        Some(match kind {
            'a' => day_name[..3].to_owned(),
            'A' => day_name.to_owned(),
            'b' | 'h' => month_name[..3].to_owned(),
            'B' => month_name.to_owned(),
            'c' => format!(
                "{} {} {day:2} 00:00:00 {year}",
                &day_name[..3],
                &month_name[..3]
            ),
            'C' => format!("{:02}", year / 100),
            'd' => format!("{day:02}"),
            'D' | 'x' => format!("{month:02}/{day:02}/{:02}", year % 100),
            'e' => format!("{day:2}"),
            'f' => "000000".to_owned(),
            'F' => format!("{year}-{month:02}-{day:02}"),
            'g' => format!("{:02}", self.iso_week().0 % 100),
            'G' => self.iso_week().0.to_string(),
            'H' | 'M' | 'S' => "00".to_owned(),
            'I' | 'l' => "12".to_owned(),
            'j' => format!("{day_of_year:03}"),
            'k' => " 0".to_owned(),
            'm' => format!("{month:02}"),
            'n' => "\n".to_owned(),
            'p' => "AM".to_owned(),
            'P' => "am".to_owned(),
            'r' => "12:00:00 AM".to_owned(),
            'R' => "00:00".to_owned(),
            't' => "\t".to_owned(),
            'T' | 'X' => "00:00:00".to_owned(),
            'u' => (if weekday == 0 { 7 } else { weekday }).to_string(),
            'U' => format!("{:02}", (day_of_year + 6 - weekday) / 7),
            'V' => format!("{:02}", self.iso_week().1),
            'w' => weekday.to_string(),
            'W' => format!("{:02}", (day_of_year + 6 - (weekday + 6) % 7) / 7),
            'y' => format!("{:02}", year % 100),
            'Y' => year.to_string(),
            'z' | 'Z' => String::new(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}
