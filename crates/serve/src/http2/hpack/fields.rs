//! Decoded header fields, stored one after another in a buffer that is reused.

use super::table::ENTRY_OVERHEAD_BYTES;

/// The fields of a field block, in their order.
#[derive(Debug, Default)]
pub struct DecodedFields {
    text: Vec<u8>,
    /// The offsets of each field and of its value in `text`.
    offsets: Vec<(u32, u32)>,
    /// The size of the field list as RFC 9113, section 6.5.2 counts it.
    size: usize,
    is_too_large: bool,
}

/// The largest field list that is stored, as RFC 9113, section 6.5.2 counts it, in bytes.
pub(in crate::http2) const MAX_FIELD_LIST_BYTES: usize = 64 * 1024;

impl DecodedFields {
    /// Removes all fields.
    pub fn clear(&mut self) {
        self.text.clear();
        self.offsets.clear();
        (self.size, self.is_too_large) = (0, false);
    }

    /// Returns whether the field list is too large, so that fields were dropped.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Returns the names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let ends = self.offsets.iter().skip(1).map(|(begin, _)| *begin as usize).chain([self.text.len()]);
        self.offsets
            .iter()
            .zip(ends)
            .map(|((begin, value), end)| self.text[*begin as usize..end].split_at((value - begin) as usize))
    }

    /// Returns the value of the first field of this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find_map(|(field_name, value)| (field_name == name).then_some(value))
    }

    /// Returns the buffer to which the caller appends the name and value of the next field, and the offset of that
    /// field. [`DecodedFields::end_field`] completes it.
    pub(super) fn begin_field(&mut self) -> (&mut Vec<u8>, usize) {
        let begin = self.text.len();
        (&mut self.text, begin)
    }

    /// Completes the field at offset `begin` whose value starts at offset `value`. Drops the field if the list has
    /// become too large.
    pub(super) fn end_field(&mut self, begin: usize, value: usize) {
        self.size += self.text.len() - begin + ENTRY_OVERHEAD_BYTES;
        if self.size > MAX_FIELD_LIST_BYTES {
            self.is_too_large = true;
            self.text.truncate(begin);
        } else {
            self.offsets.push((begin as u32, value as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(fields: &mut DecodedFields, name: &[u8], value: &[u8]) {
        let (text, begin) = fields.begin_field();
        text.extend_from_slice(name);
        text.extend_from_slice(value);
        fields.end_field(begin, begin + name.len());
    }

    #[test]
    fn fields_are_stored_up_to_64_kib_and_ignored_after_the_limit() {
        let max_value = MAX_FIELD_LIST_BYTES - (1 + ENTRY_OVERHEAD_BYTES) - (1 + ENTRY_OVERHEAD_BYTES);
        for (len, expected) in [(max_value, 2), (max_value + 1, 1)] {
            let mut fields = DecodedFields::default();
            add(&mut fields, b"a", b"");
            add(&mut fields, b"b", &vec![b'v'; len]);
            assert_eq!((fields.iter().count(), fields.is_too_large()), (expected, expected == 1), "{len}");
            add(&mut fields, b"c", b"");
            assert_eq!((fields.iter().count(), fields.is_too_large()), (expected, true), "one more field after {len}");
            assert_eq!((fields.get(b"a"), fields.get(b"c")), (Some(&b""[..]), None));
            fields.clear();
            add(&mut fields, b"d", b"1");
            assert_eq!(fields.iter().collect::<Vec<_>>(), [(&b"d"[..], &b"1"[..])], "a new block");
            assert!(!fields.is_too_large());
        }
        // Each field counts 32 bytes besides its text (RFC 9113, section 6.5.2), even if it is empty.
        let mut fields = DecodedFields::default();
        (0..MAX_FIELD_LIST_BYTES / ENTRY_OVERHEAD_BYTES).for_each(|_| add(&mut fields, b"", b""));
        assert!(!fields.is_too_large());
        add(&mut fields, b"", b"");
        assert!(fields.is_too_large());
    }

    #[test]
    fn decoded_fields_retain_their_order_and_get_returns_the_first_of_a_name() {
        let mut fields = DecodedFields::default();
        let list = [(&b"a"[..], &b"1"[..]), (b"ab", b""), (b"", b"2"), (b"a", b"3")];
        for (name, value) in list {
            add(&mut fields, name, value);
        }
        assert_eq!(fields.iter().collect::<Vec<_>>(), list);
        assert_eq!((fields.get(b"a"), fields.get(b"ab"), fields.get(b"b")), (Some(&b"1"[..]), Some(&b""[..]), None));
    }
}
