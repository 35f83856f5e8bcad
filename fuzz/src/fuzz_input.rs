//! The bytes of a fuzz input, read as a sequence of choices. After the end of the bytes each choice is zero, so a short
//! input is a simple case.

pub struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    pub fn new(bytes: &'a [u8]) -> FuzzInput<'a> {
        FuzzInput(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn u64(&mut self) -> u64 {
        (0..8).fold(0, |sum, _| sum << 8 | u64::from(self.byte()))
    }

    /// A number below `n`, which is at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// One of the values.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// The next bytes, at most `max_len`.
    pub fn bytes(&mut self, max_len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(max_len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
