//! Numbers and periods of a report for people, formatted equally for a terminal and an HTML page. Pure.

use jiff::civil::Date;

use super::report::PeriodTotals;

impl PeriodTotals {
    /// Formats the period; whole days by the first and the last.
    pub fn period_text(&self) -> String {
        let day = |text: &Option<String>| text.as_deref().filter(|text| text.len() == 10)?.parse::<Date>().ok();
        if let (Some(first), Some(end)) = (day(&self.from), day(&self.to))
            && let Ok(last) = end.yesterday()
            && last >= first
        {
            let days = (end - first).get_days();
            return match days {
                1 => first.to_string(),
                _ => format!("{first} to {last} ({days} days)"),
            };
        }
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => format!("{from} until {to}"),
            (Some(from), None) => format!("{from} until now"),
            (None, Some(to)) => format!("everything before {to}"),
            (None, None) => "everything on record".to_owned(),
        }
    }
}

/// Formats a number with separated thousands.
pub fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a difference with its sign.
pub fn signed_number(number: i64) -> String {
    let sign = match number {
        0 => "±",
        1.. => "+",
        _ => "−",
    };
    format!("{sign}{}", group_thousands(number.unsigned_abs()))
}

/// Formats a count, or a dash if there is none.
pub fn count_or_dash(number: Option<u64>) -> String {
    number.map_or_else(|| "–".to_owned(), group_thousands)
}

/// Formats a rate or share, or a dash if there is none.
pub fn percent_or_dash(number: Option<f64>) -> String {
    number.map_or_else(|| "–".to_owned(), |number| format!("{number:.1}%"))
}

/// Formats a number of terms.
pub fn count_terms(count: usize) -> String {
    format!("{} {}", group_thousands(count as u64), if count == 1 { "term" } else { "terms" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_text_shows_the_first_and_the_last_day() {
        let text = |from: Option<&str>, to: Option<&str>| {
            let (from, to) = (from.map(str::to_owned), to.map(str::to_owned));
            let totals = PeriodTotals {
                from,
                to,
                total_searches: None,
                terms_read: 0,
                all_terms_read: true,
                searches_read: 0,
                click_through_rate: None,
            };
            totals.period_text()
        };
        assert_eq!(text(Some("2026-02-01"), Some("2026-03-01")), "2026-02-01 to 2026-02-28 (28 days)");
        assert_eq!(text(Some("2026-02-01"), Some("2026-02-02")), "2026-02-01");
        assert_eq!(text(Some("2025-03-01"), Some("2026-03-01")), "2025-03-01 to 2026-02-28 (365 days)");
        assert_eq!(text(Some("2026-02-01"), None), "2026-02-01 until now");
        assert_eq!(text(None, Some("2026-02-01T10:00:00Z")), "everything before 2026-02-01T10:00:00Z");
        assert_eq!(text(None, None), "everything on record");
    }

    #[test]
    fn numbers_have_thousands_separators_signs_and_dashes_for_missing_values() {
        assert_eq!([0, 999, 1000, 1_234_567].map(group_thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 1200, -1200, i64::MIN].map(signed_number),
            ["±0", "+1,200", "−1,200", "−9,223,372,036,854,775,808"]
        );
        assert_eq!(
            [count_or_dash(Some(1200)), count_or_dash(None), percent_or_dash(Some(50.0)), percent_or_dash(None)],
            ["1,200", "–", "50.0%", "–"]
        );
        assert_eq!([count_terms(1), count_terms(0), count_terms(2000)], ["1 term", "0 terms", "2,000 terms"]);
    }
}
