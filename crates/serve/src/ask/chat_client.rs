//! The client of the endpoint: `POST {assistant.baseUrl}/chat/completions`.
//!
//! The request has the fields that every server with this interface knows, and no others. Redirects are not followed.
//! No failure quotes the endpoint, its address or its key: some of them are shown to readers, the others are logged.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use docwharf_base::error_chain::ErrorChain;
use docwharf_base::net::NetworkSettings;
use docwharf_base::net::client::{HttpClient, build_client};
use docwharf_base::net::request_error::RequestErrorCause;
use docwharf_base::secret::{SafeUrl, Secret};
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::assistant_settings::AskSettings;

use super::chat_response::{ChatFault, ChatResponseReader};
use super::prompt::ChatMessage;

/// The longest time for which the end of a response is awaited after its answer is complete. A connection whose
/// response was read to its end is used again.
const END_TIMEOUT: Duration = Duration::from_millis(200);

/// The reason why a question has no answer of the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChatFailure {
    /// The answer was not complete in time (`assistant.timeout`).
    #[error("did not answer within assistant.timeout")]
    TimedOut,
    /// The client cannot be set up, or the key cannot be read.
    #[error("cannot be asked: {0}")]
    Unusable(String),
    /// The policy of the deployment does not permit the connection.
    #[error("is not permitted by deployment.type and deployment.allow")]
    NotPermitted,
    /// There is no connection, or no response.
    #[error("cannot be reached, or closed the connection before it answered")]
    Unreachable,
    /// The response has this status.
    #[error("answered with status {0}")]
    Status(u16),
    /// The response has no usable answer.
    #[error(transparent)]
    Fault(#[from] ChatFault),
}

/// The endpoint of a model.
#[derive(Debug)]
pub(crate) struct ChatEndpoint {
    /// Why there is no client otherwise.
    client: Result<HttpClient, String>,
    url: SafeUrl,
    model: String,
    max_tokens: NonZeroU32,
    timeout: Duration,
    pub(super) key_file: Option<PathBuf>,
}

/// The body of a request.
#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: &'a [ChatMessage],
    max_tokens: NonZeroU32,
    stream: bool,
}

impl ChatEndpoint {
    /// Creates the client of an endpoint. A client that cannot be set up is an error of each question.
    pub(crate) fn new(settings: &AskSettings) -> ChatEndpoint {
        // A proxy would look for the loopback interface of its own machine.
        let ignore_proxies = settings.network.ignore_proxies || settings.base_url.is_loopback();
        let network = NetworkSettings { ignore_proxies, ..settings.network.clone() };
        let client = build_client(&network).map_err(|error| ErrorChain(&error).to_string());
        ChatEndpoint {
            client,
            url: completions_url(&settings.base_url),
            model: settings.model.clone(),
            max_tokens: settings.max_answer,
            timeout: settings.timeout,
            key_file: settings.key_file.clone(),
        }
    }

    /// Asks the model. With `stream`, the endpoint is asked to send the answer while it is made; it need not.
    pub(crate) async fn ask(
        &self,
        key: Option<&Secret>,
        messages: &[ChatMessage],
        stream: bool,
    ) -> Result<ChatAnswer, ChatFailure> {
        let deadline = Instant::now() + self.timeout;
        let client = self.client.as_ref().map_err(|reason| ChatFailure::Unusable(reason.clone()))?;
        let request = ChatRequest { model: &self.model, messages, max_tokens: self.max_tokens, stream };
        let body = serde_json::to_vec(&request).map_err(|error| ChatFailure::Unusable(error.to_string()))?;
        let request = client.request(Method::POST, &self.url).map_err(|error| match error.cause {
            RequestErrorCause::NotPermitted => ChatFailure::NotPermitted,
            _ => ChatFailure::Unusable("the HTTP client cannot be set up".to_owned()),
        })?;
        let accept = if stream { "text/event-stream, application/json" } else { "application/json" };
        let request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, accept).body(body);
        let request = match key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        };
        let response = timeout_at(deadline, request.send())
            .await
            .map_err(|_| ChatFailure::TimedOut)?
            .map_err(|_| ChatFailure::Unreachable)?;
        if !response.status().is_success() {
            return Err(ChatFailure::Status(response.status().as_u16()));
        }
        Ok(ChatAnswer { response, reader: ChatResponseReader::new(), deadline, has_ended: false })
    }
}

/// Returns the address to which requests are sent.
fn completions_url(base_url: &SafeUrl) -> SafeUrl {
    let mut url = base_url.expose().clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["chat", "completions"]);
    }
    // Cannot fail: scheme and host are those of the base address.
    SafeUrl::parse(url.as_str()).unwrap_or_else(|_| base_url.clone())
}

/// An answer that is being received.
#[derive(Debug)]
pub(crate) struct ChatAnswer {
    response: reqwest::Response,
    reader: ChatResponseReader,
    deadline: Instant,
    has_ended: bool,
}

impl ChatAnswer {
    /// Returns the time until which the response is read.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits for the next part of the text; `None` at the end.
    pub(crate) async fn next_text(&mut self) -> Result<Option<String>, ChatFailure> {
        while !self.has_ended {
            let chunk = timeout_at(self.deadline, self.response.chunk()).await;
            let was_done = self.reader.is_done();
            match chunk {
                Ok(Ok(Some(bytes))) => {
                    let text = self.reader.push(&bytes)?;
                    if self.reader.is_done() && !was_done {
                        self.deadline = self.deadline.min(Instant::now() + END_TIMEOUT);
                    }
                    self.has_ended = self.reader.is_full();
                    if !text.is_empty() {
                        return Ok(Some(text));
                    }
                }
                Ok(Ok(None)) => self.has_ended = true,
                // The answer is complete. Only the end of the response is missing.
                Ok(Err(_)) | Err(_) if was_done => self.has_ended = true,
                Ok(Err(_)) => return Err(ChatFault::Cut.into()),
                Err(_) => return Err(ChatFailure::TimedOut),
            }
        }
        Ok(Some(self.reader.finish()?).filter(|text| !text.is_empty()))
    }

    /// Returns whether the answer was cut, by the endpoint at the number of tokens, or at the largest response.
    pub(crate) fn is_truncated(&self) -> bool {
        self.reader.is_truncated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_the_path_below_the_base_address() {
        for (base, expected) in [
            ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"),
            ("http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/v1/chat/completions"),
            ("https://llm.example", "https://llm.example/chat/completions"),
            ("https://llm.example/a%20b?x=1", "https://llm.example/a%20b/chat/completions?x=1"),
        ] {
            assert_eq!(completions_url(&SafeUrl::parse(base).unwrap()).expose().as_str(), expected);
        }
    }
}
