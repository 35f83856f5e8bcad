//! The static and the dynamic table of header fields (RFC 7541, section 2.3).

use std::collections::VecDeque;

/// The largest dynamic table in bytes: the initial `SETTINGS_HEADER_TABLE_SIZE`, which this server does not change (RFC
/// 9113, section 6.5.2).
pub(super) const MAX_TABLE_BYTES: usize = 4096;
/// The size that an entry counts besides its name and value, in bytes (RFC 7541, section 4.1).
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The static table (RFC 7541, appendix A); its first entry has index 1.
pub(super) const STATIC_TABLE: [(&str, &str); 61] = [
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

/// The dynamic table of a connection, which the peer fills.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// The entries, newest first: name and value together, and the length of the name.
    entries: VecDeque<(Box<[u8]>, usize)>,
    size: usize,
    max_size: usize,
}

impl Default for DynamicTable {
    fn default() -> DynamicTable {
        DynamicTable { entries: VecDeque::new(), size: 0, max_size: MAX_TABLE_BYTES }
    }
}

impl DynamicTable {
    /// Returns the name and value at an index of both tables; `None` if there is no such entry.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let position = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC_TABLE.get(position) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let (text, name_len) = self.entries.get(position - STATIC_TABLE.len())?;
        Some(text.split_at(*name_len))
    }

    /// Returns whether there is an entry at this index.
    pub(super) fn has(&self, index: usize) -> bool {
        (1..=STATIC_TABLE.len() + self.entries.len()).contains(&index)
    }

    /// Adds an entry: `text` is its name and value, and `name_len` the length of the name. Older entries are evicted
    /// for it; an entry larger than the table evicts all and is not added (RFC 7541, section 4.4).
    pub(super) fn insert(&mut self, text: &[u8], name_len: usize) {
        let size = text.len() + ENTRY_OVERHEAD_BYTES;
        self.shrink(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            self.entries.push_front((text.into(), name_len));
        }
    }

    /// Sets the largest size, as the peer has chosen it; false if it is larger than allowed.
    pub(super) fn resize(&mut self, max_size: usize) -> bool {
        if max_size > MAX_TABLE_BYTES {
            return false;
        }
        self.max_size = max_size;
        self.shrink(max_size);
        true
    }

    fn shrink(&mut self, max_size: usize) {
        while self.size > max_size
            && let Some((text, _)) = self.entries.pop_back()
        {
            self.size -= text.len() + ENTRY_OVERHEAD_BYTES;
        }
    }
}
