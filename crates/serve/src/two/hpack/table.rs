//! The tables that fields are named by (RFC 7541, 2.3).

use std::collections::VecDeque;

/// What the table of a connection may take: the size that every connection begins with (RFC 9113, 6.5.2).
pub(super) const MOST: usize = 4096;
/// What an entry counts beyond its name and value (RFC 7541, 4.1).
pub(super) const OVERHEAD: usize = 32;

/// The table that never changes (RFC 7541, appendix A); the first has number 1.
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The table that the peer fills.
#[derive(Debug)]
pub(super) struct Table {
    /// The newest first: name and value, and the length of the name.
    entries: VecDeque<(Box<[u8]>, usize)>,
    size: usize,
    most: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { entries: VecDeque::new(), size: 0, most: MOST }
    }
}

impl Table {
    /// Name and value of a number; none if nothing has it.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let at = number.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(at) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let (text, name) = self.entries.get(at - STATIC.len())?;
        Some(text.split_at(*name))
    }

    /// Whether there is a field of this number.
    pub(super) fn has(&self, number: usize) -> bool {
        (1..=STATIC.len() + self.entries.len()).contains(&number)
    }

    /// Takes in an entry, whose name has this length; others go for it, all if it is too large itself (RFC 7541, 4.4).
    pub(super) fn insert(&mut self, text: &[u8], name: usize) {
        let size = text.len() + OVERHEAD;
        self.shrink(self.most.saturating_sub(size));
        if size <= self.most {
            self.size += size;
            self.entries.push_front((text.into(), name));
        }
    }

    /// The peer wants it to have another size; false if that is more than it may have.
    pub(super) fn resize(&mut self, most: usize) -> bool {
        if most > MOST {
            return false;
        }
        self.most = most;
        self.shrink(most);
        true
    }

    fn shrink(&mut self, most: usize) {
        while self.size > most
            && let Some((text, _)) = self.entries.pop_back()
        {
            self.size -= text.len() + OVERHEAD;
        }
    }
}
