//! Answers to the questions of readers, which a model writes from passages of the documentation.
//!
//! A question is read from the body of its request ([`question`]) and answered in steps. The search finds sections, and
//! their Markdown becomes numbered passages ([`passages`]). The model gets them with fixed instructions ([`prompt`])
//! through the client of its endpoint ([`chat_client`]), whose response is read as it arrives ([`chat_response`]). Its
//! text goes through [`citations`] to the reader ([`answer`]). [`state`] has the settings, the limits and the counts.
//!
//! Passages and the text of the model are not trusted. Neither decides about a request, a link or an address: the model
//! has no tools, its text is passed on as text, and links come from the passages only. Questions and answers are in no
//! log.

mod answer;
mod chat_client;
mod chat_response;
mod citations;
mod passages;
mod prompt;
mod question;
mod state;
mod statistics;

pub use statistics::AskOutcome;

pub(crate) use answer::{AnswerEvent, CompleteAnswer, RunningAnswer, describe_failure, nothing_found};
pub(crate) use chat_client::ChatFailure;
pub(crate) use passages::{FoundSection, Passage, PassageSelector};
pub(crate) use prompt::build_messages;
pub(crate) use question::{MAX_BODY_BYTES, ReaderQuestion};
pub(crate) use state::{AskInForce, AskState, RunningQuestion};

use docwharf_base::key_file::read_key_file;
use docwharf_base::secret::Secret;

impl AskInForce {
    /// Reads the key of the endpoint, if it needs one. Blocks.
    pub(crate) fn read_key(&self) -> Result<Option<Secret>, ChatFailure> {
        let Some(path) = &self.endpoint.key_file else { return Ok(None) };
        let name = format!("{} (assistant.keyFile)", path.display());
        read_key_file(path, &name).map(Some).map_err(ChatFailure::Unusable)
    }
}
