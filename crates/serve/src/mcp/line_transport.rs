//! Messages of the protocol as lines of two streams: one message in a line.
//!
//! The transport of rmcp ignores a line that is not JSON. JSON-RPC 2.0 (section 5.1) wants an answer to it, so this one
//! answers it with the code -32700, and goes on.

use std::io;

use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The maximum length of a line, in bytes. A longer one is refused.
const MAX_LINE_BYTES: usize = 64 << 10;
/// The number of lines that wait until the client reads.
const MAX_WAITING_LINES: usize = 16;

/// The transport. Its lines are written by a task of their own, so that none is cut when the reading is cancelled.
#[derive(Debug)]
pub(super) struct LineTransport<R> {
    input: BufReader<R>,
    /// The line that is being read. It survives a cancelled read.
    line: Vec<u8>,
    /// Whether the line is too long, so that its rest is not kept.
    is_dropped: bool,
    /// The answer to a line that is no message, until it can be passed on.
    answer: Option<ServerJsonRpcMessage>,
    output: Option<mpsc::Sender<Vec<u8>>>,
}

/// Creates a transport, and the task that writes its lines. The task ends when the transport is dropped and all lines
/// are written, or when the client reads no more.
pub(super) fn start<R, W>(input: R, mut output: W) -> (LineTransport<R>, JoinHandle<io::Result<()>>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sender, mut lines) = mpsc::channel::<Vec<u8>>(MAX_WAITING_LINES);
    let writer = tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            output.write_all(&line).await?;
            output.flush().await?;
        }
        Ok(())
    });
    let input = BufReader::new(input);
    (LineTransport { input, line: Vec::new(), is_dropped: false, answer: None, output: Some(sender) }, writer)
}

/// The outcome of parsing a line.
#[derive(Debug)]
enum ParsedLine {
    Message(Box<ClientJsonRpcMessage>),
    /// It is no message; this is the answer.
    Refused(Box<ServerJsonRpcMessage>),
    Empty,
}

fn refusal(id: Option<RequestId>, error: ErrorData) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::Error(JsonRpcError::new(id, error))
}

fn parse_line(line: &[u8]) -> ParsedLine {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return ParsedLine::Empty;
    }
    let refuse = |id, error| ParsedLine::Refused(Box::new(refusal(id, error)));
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return refuse(None, ErrorData::parse_error(format!("the line is not JSON: {error}"), None)),
    };
    if let Ok(message) = serde::Deserialize::deserialize(&value) {
        return ParsedLine::Message(Box::new(message));
    }
    let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    refuse(id, ErrorData::invalid_request("the line is not a message of JSON-RPC 2.0", None))
}

fn encode_line(message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the client reads no more")
}

impl<R: AsyncRead + Unpin> LineTransport<R> {
    /// Reads the next whole line into `line`; `false` at the end of the input. A cancelled call is continued by the
    /// next one.
    async fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                // The last line may end with the input.
                return Ok(!self.line.is_empty());
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let len = end.map_or(available.len(), |end| end + 1);
            self.is_dropped |= self.line.len() + len > MAX_LINE_BYTES;
            if self.is_dropped {
                self.line.clear();
            } else {
                self.line.extend_from_slice(&available[..len]);
            }
            self.input.consume(len);
            if end.is_some() {
                if std::mem::take(&mut self.is_dropped) {
                    // The line is empty now. Its id is unknown.
                    let message = format!("the message is longer than {MAX_LINE_BYTES} bytes");
                    self.answer = Some(refusal(None, ErrorData::invalid_request(message, None)));
                }
                return Ok(true);
            }
        }
    }
}

impl<R: AsyncRead + Unpin + Send> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = self.output.clone();
        async move {
            let line = encode_line(&message)?;
            output.ok_or_else(closed)?.send(line).await.map_err(|_| closed())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.answer.is_some() {
                let place = self.output.as_ref()?.reserve().await.ok()?;
                if let Some(line) = self.answer.take().and_then(|answer| encode_line(&answer).ok()) {
                    place.send(line);
                }
            }
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    tracing::error!("cannot read standard input: {error}");
                    return None;
                }
            }
            let parsed = parse_line(&self.line);
            self.line.clear();
            match parsed {
                ParsedLine::Message(message) => return Some(*message),
                ParsedLine::Refused(answer) => self.answer = Some(*answer),
                ParsedLine::Empty => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.output = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes this input to a transport; returns the methods that it receives and the lines that it writes.
    async fn pass(input: &[u8]) -> (Vec<String>, Vec<Value>) {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (mut transport, writer) = start(input, server);
        let mut methods = Vec::new();
        while let Some(message) = transport.receive().await {
            let message = serde_json::to_value(&message).unwrap();
            methods.push(message["method"].as_str().unwrap_or_default().to_owned());
        }
        drop(transport);
        writer.await.unwrap().unwrap();
        let mut lines = BufReader::new(client).lines();
        let mut answers = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        (methods, answers)
    }

    #[tokio::test]
    async fn answers_that_a_client_does_not_read_are_bounded() {
        let (_client, output) = tokio::io::duplex(64);
        let input = "x\n".repeat(10_000);
        let (mut transport, _writer) = start(input.as_bytes(), output);
        let idle = async {
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = transport.receive() => panic!("there is no message"),
            () = idle => {}
        }
        let unread = transport.input.buffer().len() + transport.input.get_ref().len();
        // One is being written, and one waits for its place.
        assert!((input.len() - unread) / 2 <= MAX_WAITING_LINES + 2, "{unread}");
    }

    #[tokio::test]
    async fn a_line_that_is_no_message_is_answered_and_the_next_one_is_received() {
        const PING: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";
        let long = " ".repeat(MAX_LINE_BYTES);
        let input =
            format!("nonsense\r\n\n{PING}\n{{\"jsonrpc\":\"2.0\",\"id\":9}}\n{long}{PING}\n[]\n\u{feff}{PING}\n{PING}");
        let (methods, answers) = pass(input.as_bytes()).await;
        assert_eq!(methods, ["ping", "ping", "ping"], "not the long line; the last one needs no line feed");
        let codes: Vec<_> =
            answers.iter().map(|answer| (answer["error"]["code"].as_i64(), answer["id"].clone())).collect();
        let refused = |id: Value| (Some(-32600), id);
        let expected = [(Some(-32700), Value::Null), refused(9.into()), refused(Value::Null), refused(Value::Null)];
        assert_eq!(codes, expected);
    }
}
