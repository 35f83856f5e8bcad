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
pub(in crate::serve::two) const MOST: usize = 64 * 1024;

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
