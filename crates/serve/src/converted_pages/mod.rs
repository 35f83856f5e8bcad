//! The Markdown of the pages of a site: where it comes from, and who makes it.
//!
//! The program makes the Markdown of all pages of a version beforehand, in another process, and passes the file to the
//! site ([`Site::set_site_markdown`](crate::Site::set_site_markdown)). Until that file is there, and for a site without
//! one, pages are converted on request by threads of this module, at most [`MAX_CONVERSIONS`] at a time, and for MCP
//! and ask by the threads of the search; the pages that were requested last are kept, within a bound. A conversion
//! never runs on a serving thread: a request that needs one is deferred, and its thread serves others.
//!
//! `llms.txt` and `llms-full.txt` need all pages. A site for which the program makes no file (`file_progress`) has it
//! made when one of the two is first requested, or a page by a program (`page_markdown`): in a temporary folder within
//! bounds (`temporary_file`), by one thread for all sites of the process (`file_queue`).
//!
//! This module knows neither requests nor [`Site`](crate::Site), which has one `MarkdownState`. `markdown_handler`
//! answers requests with it, `page_markdown` gives it to other parts, and `site_assistant` has the functions by which
//! the program changes it.

mod file_progress;
mod file_queue;
mod page_cache;
mod site_file;
mod state;
mod temporary_file;

pub(crate) use file_progress::FileProspect;
pub use file_progress::SiteMarkdownSource;
pub(crate) use page_cache::{ConvertedFile, MarkdownForm};
pub(crate) use state::{MarkdownState, PendingPage};

/// The maximum number of conversions of all sites of the process at a time.
const MAX_CONVERSIONS: usize = 2;
