//! The settings of what a site offers to assistants: the MCP server, Markdown, `llms.txt`, and questions that a model
//! answers.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use docwharf_base::net::NetworkSettings;
use docwharf_base::secret::SafeUrl;

use super::named_host::HostList;

/// The default number of MCP requests of a network address in a minute.
const DEFAULT_MCP_PER_MINUTE: u32 = 120;

/// The section `[assistant]` of a site. It is replaced with [`Site::set_assistant_settings`].
///
/// [`Site::set_assistant_settings`]: crate::Site::set_assistant_settings
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistantSettings {
    /// Whether `_docwharf/mcp` answers requests of the Model Context Protocol.
    pub mcp: bool,
    /// The number of MCP requests of a network address in a minute.
    pub mcp_per_minute: NonZeroU32,
    /// Whether pages are served as Markdown.
    pub markdown: bool,
    /// Whether `llms.txt` and `llms-full.txt` are made for a site that has none.
    pub llms: bool,
    /// The hosts of this site.
    pub hosts: HostList,
    /// How questions are answered; `None` if ask is off.
    pub ask: Option<AskSettings>,
}

/// Everything but ask is on. No host is listed.
impl Default for AssistantSettings {
    fn default() -> AssistantSettings {
        AssistantSettings {
            mcp: true,
            mcp_per_minute: NonZeroU32::new(DEFAULT_MCP_PER_MINUTE).unwrap_or(NonZeroU32::MIN),
            markdown: true,
            llms: true,
            hosts: HostList::default(),
            ask: None,
        }
    }
}

impl AssistantSettings {
    /// Returns whether the site serves what the file with the Markdown of all pages has, to readers, agents or a model.
    pub fn needs_site_markdown(&self) -> bool {
        self.markdown || self.llms || self.mcp || self.ask.is_some()
    }

    /// Returns the same settings for a preview, in which no question is answered.
    #[must_use]
    pub fn without_ask(&self) -> AssistantSettings {
        AssistantSettings { ask: None, ..self.clone() }
    }
}

/// The keys of `[assistant]` for questions that a model answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskSettings {
    /// The base address of the endpoint; `/chat/completions` is appended to its path.
    pub base_url: SafeUrl,
    /// The name of the model.
    pub model: String,
    /// The file with the key of the endpoint, if it needs one. It is read for each question.
    pub key_file: Option<PathBuf>,
    /// The length of a question, in characters.
    pub max_question: NonZeroUsize,
    /// The length of all passages that the model gets, in characters.
    pub max_context: NonZeroUsize,
    /// The length of an answer, in tokens.
    pub max_answer: NonZeroU32,
    /// The deadline for a complete answer of the endpoint.
    pub timeout: Duration,
    /// The number of questions that are answered at a time.
    pub parallel: NonZeroUsize,
    /// The number of questions of a network address in a minute.
    pub per_minute: NonZeroU32,
    /// The number of questions of all readers in a day (UTC).
    pub per_day: NonZeroU32,
    /// How the endpoint is reached.
    pub network: NetworkSettings,
}
