//! The request bodies that a connection collects because a response depends on them. All others are discarded
//! ([`super::receive_window`]).

use http::{Method, Request};
use tokio::sync::oneshot;

use crate::post_resources::post_body_limits;
use crate::request_body::{BodyFault, BodyLimits, CollectedBody, CountedBytes};

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
    max_bytes: usize,
    bytes: CountedBytes,
    sender: oneshot::Sender<Result<CountedBytes, BodyFault>>,
}

impl RequestBodies {
    /// Starts collecting the body of a stream within these limits; `None` if there are too many.
    fn add(&mut self, stream: u32, limits: BodyLimits) -> Option<CollectedBody> {
        // The responses to some of them may have been sent without their bodies.
        self.bodies.retain(|body| !body.sender.is_closed());
        if self.bodies.len() >= MAX_COLLECTED_BODIES {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.bodies.push(PartialBody {
            stream,
            max_bytes: limits.max_bytes,
            bytes: CountedBytes::new(limits.memory),
            sender,
        });
        Some(CollectedBody::Awaited(receiver))
    }

    /// Adds content to the body of a stream, if it is collected. Returns whether more of it is collected.
    pub(super) fn receive(&mut self, stream: u32, content: &[u8]) -> bool {
        let Some(index) = self.bodies.iter().position(|body| body.stream == stream) else { return false };
        let body = &mut self.bodies[index];
        let fault = if body.sender.is_closed() {
            None
        } else if body.bytes.as_ref().len() + content.len() > body.max_bytes {
            Some(BodyFault::TooLarge)
        } else if body.bytes.append(content) {
            return true;
        } else {
            Some(BodyFault::OutOfMemory)
        };
        let body = self.bodies.swap_remove(index);
        if let Some(fault) = fault {
            // Sending fails if the response no longer waits for the body.
            let _ = body.sender.send(Err(fault));
        }
        false
    }

    /// Completes the body of a stream, if it is collected.
    pub(super) fn complete(&mut self, stream: u32) {
        let Some(index) = self.bodies.iter().position(|body| body.stream == stream) else { return };
        let body = self.bodies.swap_remove(index);
        let _ = body.sender.send(Ok(body.bytes));
    }

    /// Drops the body of a stream that was reset, or whose response does not wait for it.
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
        let is_post = !ends_stream && request.method() == Method::POST;
        let limits = target.filter(|_| is_post).and_then(|target| post_body_limits(&self.site, target.as_str()));
        let Some(limits) = limits else { return Ok(request.map(|()| CollectedBody::Empty)) };
        let refused = Http2Error::Stream(id, ErrorCode::RefusedStream);
        let body = self.request_bodies.add(id, limits).ok_or(refused)?;
        self.receive_window.collect(id);
        Ok(request.map(|()| body))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::held_bytes::HeldBytes;

    const MAX_BYTES: usize = 8 << 10;
    static MEMORY: HeldBytes = HeldBytes::new(1 << 20);
    static LIMITS: BodyLimits = BodyLimits { max_bytes: MAX_BYTES, timeout: Duration::ZERO, memory: &MEMORY };

    fn awaited(body: CollectedBody) -> oneshot::Receiver<Result<CountedBytes, BodyFault>> {
        match body {
            CollectedBody::Awaited(receiver) => receiver,
            CollectedBody::Empty => panic!("the body is not collected"),
        }
    }

    #[test]
    fn a_collected_body_is_delivered_when_it_is_complete_or_too_large() {
        let mut bodies = RequestBodies::default();
        let [mut short, mut long, mut reset] = [1, 3, 5].map(|stream| awaited(bodies.add(stream, LIMITS).unwrap()));
        assert!(bodies.receive(1, b"ab"));
        assert!(bodies.receive(3, &[0; MAX_BYTES]));
        assert!(bodies.receive(1, b"c"));
        assert!(!bodies.receive(7, b"of another stream"));
        assert!(short.try_recv().is_err() && long.try_recv().is_err());
        bodies.complete(1);
        assert!(!bodies.receive(3, &[0]));
        bodies.remove(5);
        assert_eq!(short.try_recv().unwrap().unwrap().as_ref(), b"abc");
        assert_eq!(long.try_recv().unwrap().unwrap_err(), BodyFault::TooLarge);
        assert_eq!(reset.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
        assert!(bodies.bodies.is_empty());
    }

    #[test]
    fn a_body_for_which_no_response_waits_is_dropped_with_the_next_content() {
        let mut bodies = RequestBodies::default();
        let receiver = awaited(bodies.add(1, LIMITS).unwrap());
        assert!(bodies.receive(1, b"ab"));
        drop(receiver);
        assert!(!bodies.receive(1, b"c") && bodies.bodies.is_empty());
    }

    #[test]
    fn a_connection_collects_a_bounded_number_of_bodies() {
        let mut bodies = RequestBodies::default();
        let mut receivers: Vec<_> =
            (0..MAX_COLLECTED_BODIES as u32).map(|n| awaited(bodies.add(n, LIMITS).unwrap())).collect();
        assert!(bodies.add(99, LIMITS).is_none());
        receivers.pop();
        assert!(bodies.add(99, LIMITS).is_some(), "the response to a dropped request does not wait for its body");
    }
}
