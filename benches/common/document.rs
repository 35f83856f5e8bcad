//! Tables in BENCHMARKS.md, between marks. The text around them is written by hand and stays.

/// The number with three significant digits, or a dash for a missing value.
pub(crate) fn format_number(number: f64) -> String {
    match number {
        n if !n.is_finite() => "–".to_owned(),
        n if n.abs() >= 100.0 => format!("{n:.0}"),
        n if n.abs() >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// Replaces the text between the marks of `part` by `new`.
pub(crate) fn replace_table(document: &str, part: &str, new: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- measured: {part} -->"), format!("<!-- /measured: {part} -->"));
    let missing = || format!("BENCHMARKS.md has no {begin} with {end} after it: put them where the table belongs");
    let (before, rest) = document.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{}\n{end}{after}", new.trim_end()))
}
