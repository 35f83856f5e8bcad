//! Fields as they were decoded, one behind the other in one place that is used again.

use super::table::OVERHEAD;

/// The fields of a block, in their order.
#[derive(Debug, Default)]
pub struct Fields {
    text: Vec<u8>,
    /// Where each begins, and where its value does.
    places: Vec<(u32, u32)>,
    /// As RFC 9113, 6.5.2 counts them.
    size: usize,
    is_too_large: bool,
}

/// More than this, as RFC 9113, 6.5.2 counts it, is not kept.
pub(in crate::two) const MOST: usize = 64 * 1024;

impl Fields {
    /// Forgets them.
    pub fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
        (self.size, self.is_too_large) = (0, false);
    }

    /// Whether there were more than are kept.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let ends = self.places.iter().skip(1).map(|(begin, _)| *begin as usize).chain([self.text.len()]);
        self.places
            .iter()
            .zip(ends)
            .map(|((begin, value), end)| self.text[*begin as usize..end].split_at((value - begin) as usize))
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Where the next field is put, by whoever ends it.
    pub(super) fn begin(&mut self) -> (&mut Vec<u8>, usize) {
        let begin = self.text.len();
        (&mut self.text, begin)
    }

    /// Ends the field whose text has been put behind the others; gives it.
    pub(super) fn end(&mut self, begin: usize, value: usize) {
        self.size += self.text.len() - begin + OVERHEAD;
        if self.size > MOST {
            self.is_too_large = true;
            self.text.truncate(begin);
        } else {
            self.places.push((begin as u32, value as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(fields: &mut Fields, name: &[u8], value: &[u8]) {
        let (text, begin) = fields.begin();
        text.extend_from_slice(name);
        text.extend_from_slice(value);
        fields.end(begin, begin + name.len());
    }

    #[test]
    fn fields_are_kept_up_to_64_kib_and_none_behind_one_that_is_too_many() {
        let room = MOST - (1 + OVERHEAD) - (1 + OVERHEAD);
        for (len, expected) in [(room, 2), (room + 1, 1)] {
            let mut fields = Fields::default();
            add(&mut fields, b"a", b"");
            add(&mut fields, b"b", &vec![b'v'; len]);
            assert_eq!((fields.iter().count(), fields.is_too_large()), (expected, expected == 1), "{len}");
            add(&mut fields, b"c", b"");
            assert_eq!((fields.iter().count(), fields.is_too_large()), (expected, true), "one more behind {len}");
            assert_eq!((fields.get(b"a"), fields.get(b"c")), (Some(&b""[..]), None));
            fields.clear();
            add(&mut fields, b"d", b"1");
            assert_eq!(fields.iter().collect::<Vec<_>>(), [(&b"d"[..], &b"1"[..])], "a new block");
            assert!(!fields.is_too_large());
        }
        // Each counts 32 bytes besides its text (RFC 9113, 6.5.2), also where it has none.
        let mut fields = Fields::default();
        (0..MOST / OVERHEAD).for_each(|_| add(&mut fields, b"", b""));
        assert!(!fields.is_too_large());
        add(&mut fields, b"", b"");
        assert!(fields.is_too_large());
    }

    #[test]
    fn fields_keep_their_order_and_the_first_of_a_name_counts() {
        let mut fields = Fields::default();
        let list = [(&b"a"[..], &b"1"[..]), (b"ab", b""), (b"", b"2"), (b"a", b"3")];
        for (name, value) in list {
            add(&mut fields, name, value);
        }
        assert_eq!(fields.iter().collect::<Vec<_>>(), list);
        assert_eq!((fields.get(b"a"), fields.get(b"ab"), fields.get(b"b")), (Some(&b"1"[..]), Some(&b""[..]), None));
    }
}
