//! A list in a JSON body of which only the first elements are stored.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A list of which only the first `MAX` elements are stored and the others are counted: a body of many short elements
/// would take many times its size in memory.
#[derive(Debug, Clone)]
pub struct BoundedList<T, const MAX: usize> {
    /// The first elements.
    pub first: Vec<T>,
    /// The number of all elements.
    pub len: usize,
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BoundedList<T, MAX>, D::Error> {
        deserializer.deserialize_seq(BoundedListVisitor(PhantomData))
    }
}

struct BoundedListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedListVisitor<T, MAX> {
    type Value = BoundedList<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BoundedList<T, MAX>, A::Error> {
        let mut first = Vec::new();
        while first.len() < MAX {
            let Some(element) = list.next_element()? else {
                return Ok(BoundedList { len: first.len(), first });
            };
            first.push(element);
        }
        let mut len = first.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            len += 1;
        }
        Ok(BoundedList { first, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_beyond_the_bound_are_counted_and_not_stored() {
        for (text, first, len) in
            [("[]", &[][..], 0), ("[1]", &[1], 1), ("[1, 2]", &[1, 2], 2), ("[1, 2, \"x\", {}]", &[1, 2], 4)]
        {
            let list: BoundedList<u8, 2> = serde_json::from_str(text).unwrap();
            assert_eq!((list.first.as_slice(), list.len), (first, len), "{text}");
        }
        for text in ["[1, \"x\"]", "{}", "[1, 2, 3"] {
            assert!(serde_json::from_str::<BoundedList<u8, 2>>(text).is_err(), "{text}");
        }
    }
}
