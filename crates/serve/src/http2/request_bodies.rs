//! The request bodies that a connection collects because a response depends on them. All others are discarded
//! ([`super::receive_window`]).

use bytes::Bytes;
use http::{Method, Request};
use tokio::sync::oneshot;

use crate::events_handler::{self, MAX_BODY_BYTES};
use crate::recording::request_body::{BodyFault, CollectedBody};

use super::Http2Connection;
use super::frame::{ErrorCode, Http2Error};

/// The largest number of bodies that a connection collects at a time. A client may send a further request again, on
/// another connection or later (RFC 9113, section 8.7).
const MAX_COLLECTED_BODIES: usize = 8;

/// The bodies that are being received.
#[derive(Debug, Default)]
pub(super) struct RequestBodies {
    bodies: Vec<PartialBody>,
}

/// The part of a body that was received so far.
#[derive(Debug)]
struct PartialBody {
    stream: u32,
    bytes: Vec<u8>,
    sender: oneshot::Sender<Result<Bytes, BodyFault>>,
}

impl RequestBodies {
    /// Starts collecting the body of a stream; `None` if there are too many.
    fn add(&mut self, stream: u32) -> Option<CollectedBody> {
        // The responses to some of them may have been sent without their bodies.
        self.bodies.retain(|body| !body.sender.is_closed());
        if self.bodies.len() >= MAX_COLLECTED_BODIES {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.bodies.push(PartialBody { stream, bytes: Vec::new(), sender });
        Some(CollectedBody::Awaited(receiver))
    }

    /// Adds content to the body of a stream, if it is collected.
    pub(super) fn receive(&mut self, stream: u32, content: &[u8]) {
        let Some(index) = self.bodies.iter().position(|body| body.stream == stream) else { return };
        if self.bodies[index].bytes.len() + content.len() > MAX_BODY_BYTES {
            let body = self.bodies.swap_remove(index);
            // Sending fails if the response no longer waits for the body.
            let _ = body.sender.send(Err(BodyFault::TooLarge));
            return;
        }
        self.bodies[index].bytes.extend_from_slice(content);
    }

    /// Completes the body of a stream, if it is collected.
    pub(super) fn complete(&mut self, stream: u32) {
        let Some(index) = self.bodies.iter().position(|body| body.stream == stream) else { return };
        let body = self.bodies.swap_remove(index);
        let _ = body.sender.send(Ok(body.bytes.into()));
    }

    /// Drops the body of a stream that was reset.
    pub(super) fn remove(&mut self, stream: u32) {
        self.bodies.retain(|body| body.stream != stream);
    }

    /// Drops all bodies.
    pub(super) fn clear(&mut self) {
        self.bodies.clear();
    }
}

impl Http2Connection {
    /// Attaches the body of a request, which is collected if the response depends on it.
    pub(super) fn attach_body(
        &mut self,
        id: u32,
        ends_stream: bool,
        request: Request<()>,
    ) -> Result<Request<CollectedBody>, Http2Error> {
        let target = request.uri().path_and_query();
        let is_collected = !ends_stream
            && request.method() == Method::POST
            && target.is_some_and(|target| events_handler::is_event_target(&self.site, target.as_str()));
        let body = if is_collected {
            self.request_bodies.add(id).ok_or(Http2Error::Stream(id, ErrorCode::RefusedStream))?
        } else {
            CollectedBody::Empty
        };
        Ok(request.map(|()| body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited(body: CollectedBody) -> oneshot::Receiver<Result<Bytes, BodyFault>> {
        match body {
            CollectedBody::Awaited(receiver) => receiver,
            CollectedBody::Empty => panic!("the body is not collected"),
        }
    }

    #[test]
    fn a_collected_body_is_delivered_when_it_is_complete_or_too_large() {
        let mut bodies = RequestBodies::default();
        let [mut short, mut long, mut reset] = [1, 3, 5].map(|stream| awaited(bodies.add(stream).unwrap()));
        bodies.receive(1, b"ab");
        bodies.receive(3, &[0; MAX_BODY_BYTES]);
        bodies.receive(1, b"c");
        bodies.receive(7, b"of another stream");
        assert!(short.try_recv().is_err() && long.try_recv().is_err());
        bodies.complete(1);
        bodies.receive(3, &[0]);
        bodies.remove(5);
        assert_eq!(short.try_recv(), Ok(Ok(Bytes::from_static(b"abc"))));
        assert_eq!(long.try_recv(), Ok(Err(BodyFault::TooLarge)));
        assert_eq!(reset.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(bodies.bodies.is_empty());
    }

    #[test]
    fn a_connection_collects_a_bounded_number_of_bodies() {
        let mut bodies = RequestBodies::default();
        let mut receivers: Vec<_> = (0..MAX_COLLECTED_BODIES as u32).map(|n| awaited(bodies.add(n).unwrap())).collect();
        assert!(bodies.add(99).is_none());
        receivers.pop();
        assert!(bodies.add(99).is_some(), "the response to a dropped request does not wait for its body");
    }
}
