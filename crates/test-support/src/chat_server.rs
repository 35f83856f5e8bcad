//! A server with the chat completions interface of `OpenAI`, as far as docwharf uses it. It records each request and
//! replies as the test has told it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// How the endpoint replies to a request.
#[derive(Debug, Clone)]
pub enum ChatReply {
    /// An answer of these pieces of text: a stream if the request asks for one, else an object.
    Answer(Vec<String>),
    /// These bytes; then the connection ends.
    Raw(Vec<u8>),
    /// These bytes, then silence until the client ends the connection.
    Silent(Vec<u8>),
}

impl ChatReply {
    /// An answer in one piece.
    pub fn text(text: &str) -> ChatReply {
        ChatReply::Answer(vec![text.to_owned()])
    }

    /// A response with this status and body.
    pub fn status(status: &str, fields: &str, body: &str) -> ChatReply {
        let len = body.len();
        ChatReply::Raw(
            format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{fields}Connection: close\r\n\r\n{body}")
                .into_bytes(),
        )
    }
}

/// A request that the endpoint has received.
#[derive(Debug, Clone)]
pub struct ReceivedChatRequest {
    /// The request line.
    pub line: String,
    /// The header fields; names are in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Value,
}

impl ReceivedChatRequest {
    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the text of the last message.
    pub fn prompt(&self) -> &str {
        let last = self.body["messages"].as_array().and_then(|messages| messages.last());
        last.and_then(|message| message["content"].as_str()).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct EndpointState {
    replies: Mutex<VecDeque<ChatReply>>,
    requests: Mutex<Vec<ReceivedChatRequest>>,
    disconnects: AtomicUsize,
}

/// The running endpoint; its threads end with the test.
#[derive(Debug)]
pub struct ChatTestServer {
    /// The base address, as `assistant.baseUrl` has it.
    pub base_url: String,
    state: Arc<EndpointState>,
}

impl ChatTestServer {
    /// Starts an endpoint on a free port. It gives the replies in this order, and the last one from then on.
    pub fn start(replies: impl IntoIterator<Item = ChatReply>) -> ChatTestServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let state = Arc::new(EndpointState::default());
        state.replies.lock().expect("no panic while locked").extend(replies);
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        ChatTestServer { base_url, state }
    }

    /// Replaces the replies to the requests from now on.
    pub fn set_replies(&self, replies: impl IntoIterator<Item = ChatReply>) {
        *self.state.replies.lock().expect("no panic while locked") = replies.into_iter().collect();
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ReceivedChatRequest> {
        self.state.requests.lock().expect("no panic while locked").clone()
    }

    /// The number of clients that have ended their connection during [`ChatReply::Silent`].
    pub fn disconnects(&self) -> usize {
        self.state.disconnects.load(Ordering::SeqCst)
    }
}

/// The head and the events of a stream with these pieces of text, without its end.
pub fn stream_beginning(pieces: &[&str]) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n".to_vec();
    for piece in pieces {
        out.extend_from_slice(event(&json!({ "content": piece }), &Value::Null).as_bytes());
    }
    out
}

fn event(delta: &Value, finish_reason: &Value) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish_reason });
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice],
    });
    format!("data: {chunk}\n\n")
}

fn serve(mut stream: TcpStream, state: &EndpointState) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        read_more(&mut stream, &mut bytes)?;
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let line = lines.next()?.to_owned();
    let fields: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = fields.iter().find(|(name, _)| name == "content-length")?.1.parse::<usize>().ok()?;
    while bytes.len() < head_end + length {
        read_more(&mut stream, &mut bytes)?;
    }
    let body: Value = serde_json::from_slice(&bytes[head_end..]).unwrap_or_default();
    let reply = {
        let mut replies = state.replies.lock().expect("no panic while locked");
        if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() }
    };
    let is_stream = body["stream"] == true;
    state.requests.lock().expect("no panic while locked").push(ReceivedChatRequest { line, fields, body });
    match reply? {
        ChatReply::Answer(pieces) => stream.write_all(&encode_answer(&pieces, is_stream)).ok(),
        ChatReply::Raw(bytes) => stream.write_all(&bytes).ok(),
        ChatReply::Silent(bytes) => {
            stream.write_all(&bytes).ok()?;
            if matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)) {
                state.disconnects.fetch_add(1, Ordering::SeqCst);
            }
            Some(())
        }
    }
}

fn encode_answer(pieces: &[String], is_stream: bool) -> Vec<u8> {
    if !is_stream {
        let message = json!({ "role": "assistant", "content": pieces.concat() });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        let body = json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
        });
        let ChatReply::Raw(bytes) =
            ChatReply::status("200 OK", "Content-Type: application/json\r\n", &body.to_string())
        else {
            unreachable!("it is raw")
        };
        return bytes;
    }
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let mut out = stream_beginning(&pieces);
    out.extend_from_slice(event(&json!({}), &json!("stop")).as_bytes());
    out.extend_from_slice(b"data: [DONE]\n\n");
    out
}

fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 16 << 10];
    let n = stream.read(&mut chunk).ok().filter(|n| *n > 0)?;
    bytes.extend_from_slice(&chunk[..n]);
    Some(())
}
