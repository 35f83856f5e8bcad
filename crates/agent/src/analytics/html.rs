//! A report as one self-contained HTML page: no script, and no resource that a browser would load. Pure.

use std::fmt::Write;

use super::number_format::{count_or_dash, count_terms, group_thousands, percent_or_dash, signed_number};
use super::report::{GoneTerm, PeriodTotals, ReportTerm, SearchReport, TermList};
use docwharf_base::error_chain::OneLine;

/// Content security policy of the page, which forbids every load.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const STYLE: &str = include_str!("report.css");

/// Upper bound of the characters shown of a term or a path; a longer term is not a reader's search.
const MAX_SHOWN_CHARS: usize = 96;

/// Renders the page. Terms, paths and names may be any text; all are escaped.
pub fn render_page(report: &SearchReport) -> String {
    let title =
        format!("Searches in {}, {}", escape_foreign_text(&report.project), escape_html(&report.period.period_text()));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"generator\" content=\"docwharf {}\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        env!("CARGO_PKG_VERSION")
    );
    write_header(&mut out, report);
    out.push_str("<main>\n");
    if !report.is_empty() {
        write_tiles(&mut out, report);
        write_comparison(&mut out, report);
        write_top_terms(&mut out, report);
        write_unclicked_terms(&mut out, report);
        write_low_rates(&mut out, report);
        write_trends(&mut out, report);
    }
    out.push_str("</main>\n");
    write_footer(&mut out, report);
    out.push_str("</body>\n</html>\n");
    out
}

/// Escapes the characters that have a meaning in HTML.
fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Renders text from other sources: on one line, control characters escaped, shortened when long, escaped for HTML. It
/// cannot change the direction of the text around it.
fn escape_foreign_text(text: &str) -> String {
    let line = OneLine(text).to_string();
    let mut cut: String = line.chars().take(MAX_SHOWN_CHARS).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    escape_html(&cut)
}

/// Renders a term in a `bdi` element, which isolates its text direction.
fn format_term(text: &str) -> String {
    if text.trim().is_empty() {
        return "<span class=\"none\">nothing typed</span>".to_owned();
    }
    format!("<bdi>{}</bdi>", escape_foreign_text(text))
}

fn format_times(hits: u64) -> String {
    if hits == 1 { "once".to_owned() } else { format!("{} times", group_thousands(hits)) }
}

fn write_header(out: &mut String, report: &SearchReport) {
    let _ = writeln!(
        out,
        "<header>\n<h1>What readers search for in {}</h1>\n<p class=\"period\">{}</p>\n<p class=\"lead\">{}</p>\n</header>",
        format_term(&report.project),
        escape_html(&report.period.period_text()),
        format_summary(report)
    );
}

/// Renders the summary of the report in one or two sentences.
fn format_summary(report: &SearchReport) -> String {
    if report.is_empty() {
        return "Nobody searched in this period.".to_owned();
    }
    let mut out = match (report.period.total_searches, report.period.click_through_rate) {
        (Some(total), Some(rate)) => {
            format!(
                "Readers searched {}, and {} of the searches led to a click.",
                format_times(total),
                percent_or_dash(Some(rate))
            )
        }
        (Some(total), None) => format!("Readers searched {}.", format_times(total)),
        (None, Some(rate)) => format!("{} of the searches led to a click.", percent_or_dash(Some(rate))),
        (None, None) => String::new(),
    };
    if let Some(first) = report.unclicked.list.first().filter(|first| first.hits.is_some_and(|hits| hits > 0)) {
        let part = report
            .unclicked
            .share
            .map_or_else(|| group_thousands(report.unclicked.searches), |share| percent_or_dash(Some(share)));
        let _ = write!(
            out,
            " <strong>{part} were for terms of which nobody clicked a result</strong>, first of all “{}” ({}).",
            format_term(&first.search_query),
            first.hits.map(format_times).unwrap_or_default()
        );
    }
    out
}

fn write_tile(out: &mut String, name: &str, class: &str, figure: &str, more: &str) {
    let _ = writeln!(out, "<div><dt>{name}</dt><dd class=\"number{class}\">{figure}</dd><dd>{more}</dd></div>");
}

fn write_tiles(out: &mut String, report: &SearchReport) {
    out.push_str("<dl class=\"tiles\">\n");
    let change = report.change.as_ref();
    let searches = change.map_or_else(String::new, |change| difference_to_previous(change.percent, "%"));
    write_tile(out, "Searches", "", &count_or_dash(report.period.total_searches), &searches);
    let points = change.map_or_else(String::new, |change| difference_to_previous(change.points, " points"));
    write_tile(out, "Led to a click", "", &percent_or_dash(report.period.click_through_rate), &points);
    let list = &report.unclicked;
    let share = list.share.map_or_else(String::new, |share| format!(", {} of all", percent_or_dash(Some(share))));
    let class = if list.searches > 0 { " alarm" } else { "" };
    write_tile(
        out,
        "Never clicked",
        class,
        &group_thousands(list.searches),
        &format!("{}{share}", count_terms(list.terms)),
    );
    let read = if report.period.all_terms_read { "different searches" } else { "read, and there are more" };
    write_tile(out, "Terms", "", &group_thousands(report.period.terms_read as u64), read);
    out.push_str("</dl>\n");
}

/// Formats a difference to the period before, with its sign.
fn difference_to_previous(number: Option<f64>, unit: &str) -> String {
    let text = match number {
        None => return "nothing to compare with".to_owned(),
        Some(0.0) => format!("±0{unit}"),
        Some(number) => format!("{}{:.1}{unit}", if number > 0.0 { '+' } else { '−' }, number.abs()),
    };
    format!("<span class=\"up\">{text}</span> against the period before")
}

/// Renders a bar: searches with a click, then searches without, in proportion to `max_hits`. It is hidden from screen
/// readers, because the next cells have the numbers.
fn bar(hits: Option<u64>, ctr: Option<f64>, max_hits: u64) -> String {
    let length = hits.unwrap_or(0) as f64 * 100.0 / max_hits.max(1) as f64;
    let clicked = length * ctr.unwrap_or(0.0) / 100.0;
    let parts = [("found", clicked), ("lost", length - clicked)].into_iter().filter(|(_, part)| *part > 0.0);
    let mut segments = String::new();
    for (class, part) in parts {
        let _ = write!(segments, "<i class=\"{class}\" style=\"width:{part:.2}%\"></i>");
    }
    format!("<td class=\"bar\" aria-hidden=\"true\"><div>{segments}</div></td>")
}

const LEGEND: &str = "<p class=\"key\"><span><i class=\"found\"></i>led to a click</span>\
                   <span><i class=\"lost\"></i>did not</span></p>\n";

fn write_comparison(out: &mut String, report: &SearchReport) {
    let Some(previous) = &report.previous else { return };
    let max_hits = report.period.total_searches.max(previous.total_searches).unwrap_or(0);
    let _ = write!(
        out,
        "<section class=\"compare\">\n<h2>Against the period before</h2>\n<p class=\"note\">Both periods are equally long.</p>\n\
         {LEGEND}<table class=\"wide\">\n<caption>Searches and click-through rate of both periods</caption>\n<thead><tr><th scope=\"col\">Period</th>\
         <td class=\"bar\" aria-hidden=\"true\"></td><th scope=\"col\">Searches</th><th scope=\"col\">Clicked</th></tr></thead>\n<tbody>\n"
    );
    for (name, totals) in [("This period", &report.period), ("Before", previous)] {
        let PeriodTotals { total_searches, click_through_rate, .. } = totals;
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><bdi>{name}</bdi><span class=\"page\">{}</span></th>{}<td>{}</td><td>{}</td></tr>",
            escape_html(&totals.period_text()),
            bar(*total_searches, *click_through_rate, max_hits),
            count_or_dash(*total_searches),
            percent_or_dash(*click_through_rate)
        );
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

/// The second number in the row of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RankedColumn {
    /// The click-through rate.
    Clicked,
    /// The share of all searches, in lists of terms without a click.
    Share,
}

/// Renders a section with the bars of terms.
fn write_ranked_terms(
    out: &mut String,
    report: &SearchReport,
    head: &str,
    note: &str,
    second: RankedColumn,
    list: &[ReportTerm],
    caption: &str,
) {
    let _ = write!(out, "<section>\n<h2>{head}</h2>\n<p class=\"note\">{note}</p>\n");
    if !list.is_empty() {
        let is_compared = report.previous.is_some();
        let change = if is_compared { "<th scope=\"col\">Change</th>" } else { "" };
        let (key, first, number) = match second {
            RankedColumn::Clicked => (LEGEND, "Term, and the page clicked most", "Clicked"),
            RankedColumn::Share => ("", "Term", "Of all"),
        };
        let _ = write!(
            out,
            "{key}<table class=\"wide\">\n<caption>{caption}</caption>\n<thead><tr><th scope=\"col\">{first}</th>\
             <td class=\"bar\" aria-hidden=\"true\"></td><th scope=\"col\">Searches</th><th scope=\"col\">{number}</th>{change}</tr>\
             </thead>\n<tbody>\n"
        );
        let max_hits = list.iter().filter_map(|term| term.hits).max().unwrap_or(0);
        for term in list {
            write_term_row(out, term, second, max_hits, is_compared);
        }
        out.push_str("</tbody>\n</table>\n");
    }
    out.push_str("</section>\n");
}

fn write_term_row(out: &mut String, term: &ReportTerm, second: RankedColumn, max_hits: u64, is_compared: bool) {
    let page = term.top_clicked_page.as_deref().filter(|page| !page.is_empty());
    let page = page.map_or_else(String::new, |page| {
        format!("<span class=\"page\"><bdi>{}</bdi></span>", escape_foreign_text(page))
    });
    let change = if is_compared { format!("<td>{}</td>", format_change(term)) } else { String::new() };
    let _ = writeln!(
        out,
        "<tr><th scope=\"row\">{}{page}</th>{}<td>{}</td><td>{}</td>{change}</tr>",
        format_term(&term.search_query),
        bar(term.hits, term.ctr, max_hits),
        count_or_dash(term.hits),
        percent_or_dash(if second == RankedColumn::Clicked { term.ctr } else { term.share })
    );
}

fn format_change(term: &ReportTerm) -> String {
    match (term.before, term.change) {
        (None, Some(_)) => "<span class=\"up\">new</span>".to_owned(),
        (_, Some(0)) => "±0".to_owned(),
        (_, Some(change)) => {
            format!("<span class=\"{}\">{}</span>", if change > 0 { "up" } else { "down" }, signed_number(change))
        }
        (_, None) => "–".to_owned(),
    }
}

fn write_top_terms(out: &mut String, report: &SearchReport) {
    let note = format!("The {} searched for most.", count_terms(report.top.len()));
    write_ranked_terms(
        out,
        report,
        "What readers search for",
        &note,
        RankedColumn::Clicked,
        &report.top,
        "The most frequent terms",
    );
}

/// Formats how many terms a list has, and how many of them are shown.
fn describe_length(list: &TermList) -> String {
    let count = count_terms(list.terms);
    if list.list.len() < list.terms { format!("{count}; the first {} are shown", list.list.len()) } else { count }
}

fn write_unclicked_terms(out: &mut String, report: &SearchReport) {
    let list = &report.unclicked;
    let note = if list.terms == 0 {
        "None: each term led to a click at least once.".to_owned()
    } else {
        let share =
            list.share.map_or_else(String::new, |share| format!(", {} of all searches", percent_or_dash(Some(share))));
        format!(
            "Nobody clicked a result: a page is missing, or has other words for it. {} searches{share}, for {}.",
            group_thousands(list.searches),
            describe_length(list)
        )
    };
    write_ranked_terms(
        out,
        report,
        "Searched for, and not found",
        &note,
        RankedColumn::Share,
        &list.list,
        "Terms that nobody clicked a result of",
    );
}

fn write_low_rates(out: &mut String, report: &SearchReport) {
    let (list, parameters) = (&report.low_ctr, &report.parameters);
    let limit = format!("under {}% of at least {} searches", parameters.low_percent, parameters.fewest_hits);
    let note = if list.terms == 0 {
        format!("None: no term that was clicked led to a click in {limit}.")
    } else {
        format!(
            "Clicked, but in {limit}: the results are perhaps not what was meant. Most searches without a click first; {}.",
            describe_length(list)
        )
    };
    write_ranked_terms(
        out,
        report,
        "Seldom clicked",
        &note,
        RankedColumn::Clicked,
        &list.list,
        "Terms with a low click-through rate",
    );
}

/// Renders one of the four lists of changes; `rows` are table cells.
fn write_change_list(out: &mut String, head: &str, none: &str, columns: &[&str], rows: &[String]) {
    let _ = writeln!(out, "<div>\n<h3>{head}</h3>");
    if rows.is_empty() {
        let _ = writeln!(out, "<p class=\"note\">{none}</p>\n</div>");
        return;
    }
    let columns: String = columns.iter().flat_map(|name| ["<th scope=\"col\">", *name, "</th>"]).collect();
    let rows: String = rows.iter().flat_map(|row| ["<tr>", row.as_str(), "</tr>\n"]).collect();
    let _ = writeln!(
        out,
        "<table>\n<caption>{head}</caption>\n<thead><tr>{columns}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
    );
}

fn write_trends(out: &mut String, report: &SearchReport) {
    let Some(trends) = &report.trends else { return };
    let is_complete =
        report.period.all_terms_read && report.previous.as_ref().is_none_or(|before| before.all_terms_read);
    let notice =
        if is_complete { "" } else { " Not all terms were read: those that are too rare to tell are left out." };
    let _ = writeln!(
        out,
        "<section>\n<h2>What has changed</h2>\n<p class=\"note\">By the difference in searches.{notice}</p>\n<div class=\"trends\">"
    );
    let changed = |term: &ReportTerm| {
        let before = term.before.and_then(|before| before.hits);
        let cells = [count_or_dash(before), count_or_dash(term.hits), format_change(term)];
        let cells: String = cells.iter().flat_map(|cell| ["<td>", cell.as_str(), "</td>"]).collect();
        format!("<th scope=\"row\">{}</th>{cells}", format_term(&term.search_query))
    };
    let columns = ["Term", "Before", "Now", "Change"];
    let rows = |list: &[ReportTerm]| list.iter().map(changed).collect::<Vec<_>>();
    write_change_list(out, "More often", "No term.", &columns, &rows(&trends.risen));
    write_change_list(out, "Less often", "No term.", &columns, &rows(&trends.fallen));
    let new = |term: &ReportTerm| {
        format!(
            "<th scope=\"row\">{}</th><td>{}</td><td>{}</td>",
            format_term(&term.search_query),
            count_or_dash(term.hits),
            percent_or_dash(term.ctr)
        )
    };
    let new: Vec<String> = trends.new.iter().map(new).collect();
    write_change_list(out, "New", "No term.", &["Term", "Searches", "Clicked"], &new);
    let gone = |term: &GoneTerm| {
        let GoneTerm { search_query, before } = term;
        format!(
            "<th scope=\"row\">{}</th><td>{}</td><td>{}</td>",
            format_term(search_query),
            count_or_dash(before.hits),
            percent_or_dash(before.ctr)
        )
    };
    let gone: Vec<String> = trends.gone.iter().map(gone).collect();
    write_change_list(out, "Not any more", "No term.", &["Term", "Searches before", "Clicked then"], &gone);
    out.push_str("</div>\n</section>\n");
}

fn write_footer(out: &mut String, report: &SearchReport) {
    let mut notes = String::new();
    for (name, totals) in [("", Some(&report.period)), (" of the period before", report.previous.as_ref())] {
        let Some(totals) = totals.filter(|totals| !totals.all_terms_read) else { continue };
        let share = totals
            .share_read()
            .map_or_else(String::new, |share| format!(", {} of its searches", percent_or_dash(Some(share))));
        let _ =
            write!(notes, " Only the first {}{name} were read{share}: there are more.", count_terms(totals.terms_read));
    }
    let time = escape_html(&report.made_at.replace('T', " ").replace('Z', " UTC"));
    let _ = writeln!(
        out,
        "<footer>\n<p>Made by docwharf at {time} from the search analytics of <bdi>{}</bdi>.{notes}</p>\n\
         <p>A search is an event: the same term typed twice counts twice. “Clicked” is the part of the searches for a term that led to \
         a click on a result. Days are in UTC.</p>\n</footer>",
        escape_foreign_text(&report.project)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::period::Period;
    use crate::analytics::report::{MIN_RATED_HITS, PeriodTerms, ReportParameters};
    use crate::api::analytics::{SearchPage, SearchTerm};

    fn report(terms: &[&str]) -> SearchReport {
        let search = |term: &&str| SearchTerm {
            search_query: (*term).to_owned(),
            hits: Some(7.into()),
            ctr: Some(50.into()),
            top_clicked_page: Some(format!("/{term}")),
            last_searched_at: None,
        };
        let page = SearchPage { searches: terms.iter().map(search).collect(), total_searches: None, next_cursor: None };
        let period = Period { from: Some("2026-02-01\"><script>".to_owned()), to: None };
        let read = PeriodTerms { period, page };
        let before = PeriodTerms { period: Period::default(), page: SearchPage::default() };
        let parameters = ReportParameters { top: 100, low_percent: 60.0, fewest_hits: MIN_RATED_HITS };
        SearchReport::new("<b>&'", "<i>", &read, Some(&before), parameters)
    }

    #[test]
    fn search_terms_are_escaped_as_text_in_the_html_page() {
        let long = "x".repeat(5000);
        let hostile = [
            "</title></style><script>alert(1)</script>",
            "<img src=https://evil.example/x onerror=alert(1)>",
            "\" onmouseover=\"alert(1)",
            "' style='background:url(//evil.example)'",
            "&lt;script&gt;",
            "\x1b[31mred\x07\r\n\0",
            "\u{202e}gnp.exe",
            "",
            &long,
        ];
        let page = render_page(&report(&hostile));
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<i>") && !page.contains("<b>"));
        assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("&amp;lt;script&amp;gt;"));
        assert!(page.contains("&quot; onmouseover=&quot;") && page.contains("&#39; style=&#39;"));
        assert!(!page.chars().any(|c| c.is_control() && c != '\n') && !page.contains('\u{202e}'));
        assert!(page.contains("nothing typed") && !page.contains(&"x".repeat(MAX_SHOWN_CHARS + 1)));
        assert_eq!(page.matches("<style").count(), 1);
    }

    #[test]
    fn report_without_searches_renders_a_complete_page() {
        let page = render_page(&report(&[]));
        assert!(page.contains("Nobody searched") && page.ends_with("</html>\n"));
    }
}
