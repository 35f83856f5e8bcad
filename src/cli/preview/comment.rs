//! Formats a preview as a comment for a pull request, in Markdown. No text from the upstream is interpreted as markup.

use std::fmt::Write;

use docwharf_agent::api::preview::{DeploymentAction, PreviewDeployment, StartedPreview};
use docwharf_base::error_chain::OneLine;

use super::commit_line::commit_line;

/// Number of log lines in a comment. Forges accept about 64 KiB.
const MAX_COMMENT_LOG_LINES: usize = 60;
/// Number of characters shown of each log line.
const MAX_LOG_LINE_CHARS: usize = 300;

/// Returns the comment. Its first line is an HTML comment, by which a script finds the comment of a branch again.
pub(super) fn markdown(branch: &str, preview: &StartedPreview, deployment: Option<&PreviewDeployment>) -> String {
    let mut out = format!("<!-- docwharf preview: {} -->\n", escape_html_comment(branch));
    let state = match deployment.map(PreviewDeployment::next_action) {
        Some(DeploymentAction::Ready) => "ready",
        Some(DeploymentAction::Failed) => "failed",
        Some(DeploymentAction::Poll) | None => "in progress",
    };
    let _ = writeln!(out, "### Documentation preview: {state}\n");
    let _ = writeln!(out, "| | |\n|---|---|");
    let mut row = |name: &str, cell: &str| {
        let _ = writeln!(out, "| {name} | {cell} |");
    };
    if let Some(url) = &preview.preview_url {
        row("Preview", &format!("<{}>", url.replace('|', "%7C").replace('<', "%3C").replace('>', "%3E")));
    }
    row("Branch", &code(branch));
    if let Some(deployment) = deployment {
        row("Status", &code(&deployment.status));
        if let Some(summary) = &deployment.summary {
            row("Summary", &code(summary));
        }
        if let Some(commit) = &deployment.commit {
            row("Commit", &code(&commit_line(commit)));
        }
        if !deployment.logs.is_empty() {
            append_logs(&mut out, &deployment.logs, deployment.next_action() == DeploymentAction::Failed);
        }
    }
    out
}

/// Appends the logs in a code fence longer than any run of backticks in them; `open` shows them unfolded.
fn append_logs(out: &mut String, lines: &[String], open: bool) {
    let shown: Vec<String> = lines[lines.len().saturating_sub(MAX_COMMENT_LOG_LINES)..]
        .iter()
        .map(|line| OneLine(line).to_string().chars().take(MAX_LOG_LINE_CHARS).collect())
        .collect();
    let fence = "`".repeat(shown.iter().map(|line| longest_backtick_run(line)).max().unwrap_or(0).max(2) + 1);
    let (title, open) = if lines.len() > shown.len() {
        (format!("Logs, the last {} of {} lines", shown.len(), lines.len()), open)
    } else {
        ("Logs".to_owned(), open)
    };
    let open = if open { " open" } else { "" };
    let _ = writeln!(
        out,
        "\n<details{open}><summary>{title}</summary>\n\n{fence}text\n{}\n{fence}\n\n</details>",
        shown.join("\n")
    );
}

fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Formats text as a code span (`CommonMark`, section 6.1) in a table cell: it mentions no user and contains no link.
fn code(text: &str) -> String {
    let line = OneLine(text).to_string().replace('|', "\\|");
    let ticks = "`".repeat(longest_backtick_run(&line) + 1);
    format!("{ticks} {line} {ticks}")
}

/// Replaces the characters that could end an HTML comment: hyphens and `>`.
fn escape_html_comment(text: &str) -> String {
    OneLine(text).to_string().replace('-', "\u{2010}").replace('>', "\u{203a}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview() -> StartedPreview {
        StartedPreview { status_id: Some("1".into()), preview_url: Some("https://p.example/a|b".into()) }
    }

    #[test]
    fn upstream_text_has_no_markup_effect_in_the_preview_comment() {
        let hostile = "@everyone <img src=x> **b** | c ``` ]( \n# d";
        let deployment = PreviewDeployment {
            status: hostile.into(),
            summary: Some(hostile.into()),
            logs: vec!["```` <script>".into(), hostile.into()],
            created_at: None,
            ended_at: None,
            commit: None,
        };
        let text = markdown("x --> <b>", &preview(), Some(&deployment));
        assert_eq!(text.lines().next(), Some("<!-- docwharf preview: x \u{2010}\u{2010}\u{203a} <b\u{203a} -->"));
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with("| S")).collect();
        assert_eq!(table.len(), 2, "{text}");
        for row in table {
            assert!(row.contains("```` @everyone") && row.ends_with("```` |") && row.contains("\\| c"), "{row}");
        }
        assert!(text.contains("\n`````text\n```` <script>\n"), "{text}");
        assert!(text.contains("<https://p.example/a%7Cb>"));
    }

    #[test]
    fn preview_comment_of_a_branch_always_starts_with_the_same_line() {
        let state = |status: &str| PreviewDeployment {
            status: status.into(),
            summary: None,
            logs: (1..=100).map(|n| format!("{n:03}{}", "x".repeat(400))).collect(),
            created_at: None,
            ended_at: None,
            commit: None,
        };
        let of = |deployment: Option<PreviewDeployment>| markdown("main", &preview(), deployment.as_ref());
        let all = [of(None), of(Some(state("success"))), of(Some(state("failure")))];
        assert!(all.iter().all(|text| text.lines().next() == all[0].lines().next()));
        assert!(
            all[1].contains("preview: ready") && all[1].contains("<details><summary>Logs, the last 60 of 100 lines")
        );
        assert!(all[2].contains("preview: failed") && all[2].contains("<details open>"));
        // Of a long log its end is shown, and of a long line its beginning.
        let shown: Vec<&str> = all[1].lines().filter(|line| line.ends_with("xxx")).collect();
        assert_eq!((shown.len(), &shown[0][..4], &shown[59][..4]), (60, "041x", "100x"));
        assert!(shown.iter().all(|line| line.len() == 300), "{shown:?}");
    }
}
