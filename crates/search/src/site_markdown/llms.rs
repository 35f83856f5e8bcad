//! `llms.txt` and `llms-full.txt` for a site that has none (llmstxt.org).

use crate::markdown::{PageMarkdown, escape_line, write_link};

/// The maximum number of pages in each of the two files.
pub const MAX_LLMS_PAGES: usize = 10_000;
/// The maximum length of each of the two files, in bytes.
pub const MAX_LLMS_BYTES: usize = 32 << 20;
/// The bytes that are kept free for the last line.
const LAST_LINE_BYTES: usize = 200;
/// The heading of the list of the pages that are in no folder.
const ROOT_HEADING: &str = "Pages";

/// One of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LlmsText {
    /// `llms.txt`: the list of the pages.
    Index,
    /// `llms-full.txt`: the pages themselves.
    Full,
}

/// A page in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedPage {
    /// The number of the file in the version.
    pub(super) file: usize,
    /// The address of the page, without a leading slash.
    pub(super) address: String,
    /// The path to which its link leads, below the base path: that of its Markdown, or the address of the page.
    pub(super) link_path: String,
    pub(super) title: String,
    pub(super) description: Option<String>,
}

impl ListedPage {
    /// The top folder of the page; `None` if it is in none.
    fn top_folder(&self) -> Option<&str> {
        self.address.split_once('/').map(|(folder, _)| folder).filter(|folder| !folder.is_empty())
    }

    fn link(&self, base_path: &str) -> String {
        let title = if self.title.is_empty() { &self.address } else { &self.title };
        write_link(title, &format!("{base_path}{}", self.link_path))
    }
}

/// Writes the title and the description of the site, which are those of its start page.
fn write_head(start: Option<&ListedPage>) -> String {
    let title = start.map(|page| page.title.as_str()).filter(|title| !title.is_empty()).unwrap_or("Documentation");
    let mut text = format!("# {}\n", escape_line(title));
    if let Some(description) = start.and_then(|page| page.description.as_deref()) {
        text.push_str("\n> ");
        text.push_str(&escape_line(description));
        text.push('\n');
    }
    text
}

/// The line that says that pages are missing.
fn cut_line(pages: usize, all: usize) -> String {
    format!("\n(This file ends here, after {pages} of {all} pages.)\n")
}

fn find_start(pages: &[ListedPage]) -> Option<&ListedPage> {
    pages.iter().find(|page| page.address.is_empty() || page.address == "index.html").or(pages.first())
}

/// Writes `llms.txt`: the pages, in their order, below a heading for each top folder.
pub(super) fn write_llms(pages: &[ListedPage], base_path: &str, max_bytes: usize) -> String {
    let listed = &pages[..pages.len().min(MAX_LLMS_PAGES)];
    let mut folders: Vec<(Option<&str>, Vec<&ListedPage>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for page in listed {
        let place = *places.entry(page.top_folder()).or_insert_with(|| {
            folders.push((page.top_folder(), Vec::new()));
            folders.len() - 1
        });
        folders[place].1.push(page);
    }
    let mut text = write_head(find_start(pages));
    let mut count = 0;
    'folders: for (folder, pages) in folders {
        let mut heading = format!("\n## {}\n\n", escape_line(folder.unwrap_or(ROOT_HEADING)));
        for page in pages {
            let description = page.description.as_deref().map(|text| format!(": {}", escape_line(text)));
            let line = format!("- {}{}\n", page.link(base_path), description.unwrap_or_default());
            if text.len() + heading.len() + line.len() + LAST_LINE_BYTES > max_bytes {
                break 'folders;
            }
            text.push_str(&std::mem::take(&mut heading));
            text.push_str(&line);
            count += 1;
        }
    }
    if count < pages.len() {
        text.push_str(&cut_line(count, pages.len()));
    }
    text
}

/// Writes `llms-full.txt` piece by piece: the Markdown of the pages, in their order, each after its address. `read`
/// returns a page; one that cannot be read any more is left out.
pub(super) fn write_llms_full<E>(
    pages: &[ListedPage],
    base_path: &str,
    max_bytes: usize,
    read: impl Fn(usize) -> Option<PageMarkdown>,
    mut write: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let head = write_head(find_start(pages));
    write(&head)?;
    let (mut len, mut count) = (head.len(), 0);
    for page in pages.iter().take(MAX_LLMS_PAGES) {
        let text = read(page.file).map(|markdown| markdown.text).unwrap_or_default();
        let piece = format!("\n---\n\nPage: {}\n\n{text}", page.link(base_path));
        if len + piece.len() + LAST_LINE_BYTES > max_bytes {
            break;
        }
        write(&piece)?;
        len += piece.len();
        count += 1;
    }
    if count < pages.len() {
        write(&cut_line(count, pages.len()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(file: usize, address: &str, title: &str, description: Option<&str>) -> ListedPage {
        let stem = address.strip_suffix(".html").unwrap_or(address);
        ListedPage {
            file,
            address: address.to_owned(),
            link_path: format!("{stem}.md"),
            title: title.to_owned(),
            description: description.map(str::to_owned),
        }
    }

    fn pages() -> Vec<ListedPage> {
        vec![
            page(0, "guides/a.html", "A [1]", Some("about *a*")),
            page(1, "index.html", "Docs", Some("All of it.")),
            page(2, "api/x y.html", "", None),
            page(3, "guides/b.html", "B", None),
        ]
    }

    #[test]
    fn list_has_a_heading_for_each_top_folder_in_the_order_of_the_pages() {
        let expected = "# Docs\n\n> All of it.\n\n## guides\n\n- [A \\[1\\]](/docs/guides/a.md): about \\*a\\*\n\
                        - [B](/docs/guides/b.md)\n\n## Pages\n\n- [Docs](/docs/index.md): All of it.\n\n\
                        ## api\n\n- [api/x y.html](/docs/api/x%20y.md)\n";
        assert_eq!(write_llms(&pages(), "/docs/", MAX_LLMS_BYTES), expected);
        assert_eq!(write_llms(&[], "/", MAX_LLMS_BYTES), "# Documentation\n");
    }

    #[test]
    fn both_files_are_cut_at_a_page_and_say_so() {
        let pages = pages();
        for max_bytes in [0, 250, 300, 330, 400] {
            let text = write_llms(&pages, "/docs/", max_bytes);
            assert!(text.len() <= max_bytes.max(300), "{text}");
            let lines = text.lines().filter(|line| line.starts_with("- [")).count();
            let is_cut = text.ends_with(&format!("(This file ends here, after {lines} of 4 pages.)\n"));
            assert_eq!(is_cut, lines < 4, "{text}");
        }
        let many: Vec<ListedPage> = (0..=MAX_LLMS_PAGES).map(|file| page(file, "x.html", "X", None)).collect();
        let text = write_llms(&many, "/", MAX_LLMS_BYTES);
        assert!(text.ends_with("(This file ends here, after 10000 of 10001 pages.)\n"));
    }

    #[test]
    fn full_text_has_each_page_after_its_address() {
        let read = |file: usize| {
            let mut markdown = crate::markdown::render_page(
                format!("<h1>{file}</h1>").as_bytes(),
                &crate::markdown::MarkdownSettings { page_url: "", base_path: "/" },
            )
            .unwrap();
            markdown.title = String::from("x");
            (file != 3).then_some(markdown)
        };
        let write_all = |max_bytes: usize| {
            let mut text = String::new();
            let written: Result<(), std::convert::Infallible> =
                write_llms_full(&pages()[..2], "/docs/", max_bytes, read, |piece| {
                    text.push_str(piece);
                    Ok(())
                });
            written.unwrap();
            text
        };
        let first = "# Docs\n\n> All of it.\n\n---\n\nPage: [A \\[1\\]](/docs/guides/a.md)\n\n# 0\n";
        let whole = format!("{first}\n---\n\nPage: [Docs](/docs/index.md)\n\n# 1\n");
        assert_eq!(write_all(MAX_LLMS_BYTES), whole);
        let cut = format!("{first}\n(This file ends here, after 1 of 2 pages.)\n");
        assert_eq!(write_all(first.len() + LAST_LINE_BYTES + 10), cut);
    }
}
