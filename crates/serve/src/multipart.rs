//! Responses with several ranges: `multipart/byteranges` (RFC 9110, 14.6 and 15.3.7.2).

use std::fmt::Write as _;

use bytes::Bytes;
use memchr::memmem;

use docwharf_base::model::digest::{Digest, encode_hex};

use super::body::ResponseBody;
use super::inflating_body::BodySegment;

/// The largest number of bytes that a part may add to its bytes of the file, the last boundary included.
pub const MAX_PART_OVERHEAD_BYTES: u64 = 200;

/// A body of several parts, before any byte of it is copied.
#[derive(Debug)]
pub struct Multipart<'a> {
    boundary: String,
    slices: &'a [(u64, u64)],
    /// The boundary and header fields before each part.
    heads: Vec<String>,
    /// The boundary that ends the body.
    end_boundary: String,
}

impl<'a> Multipart<'a> {
    /// Prepares a body with these slices of a representation of `len` bytes whose content has this digest. `coding` is
    /// the content coding of the parts. Returns `None` if the parts would add more than [`MAX_PART_OVERHEAD_BYTES`]
    /// bytes each.
    pub fn new(
        slices: &'a [(u64, u64)],
        len: u64,
        content: &Digest,
        media_type: &str,
        coding: Option<&str>,
    ) -> Option<Multipart<'a>> {
        // The boundary is made of hexadecimal digits of the content's SHA-256, so no content can be constructed that
        // contains its own boundary.
        let boundary = encode_hex(&content.0[8..20]);
        let mut separator = "";
        let mut heads = Vec::with_capacity(slices.len());
        for (start, end) in slices {
            let mut head = format!("{separator}--{boundary}\r\nContent-Type: {media_type}\r\n");
            // The multipart body itself is not coded, so each part names its coding. In the head of the response,
            // Content-Encoding would make clients decode the whole body before they separate the parts.
            if let Some(coding) = coding {
                let _ = write!(head, "Content-Encoding: {coding}\r\n");
            }
            let _ = write!(head, "Content-Range: bytes {start}-{}/{len}\r\n\r\n", end - 1);
            heads.push(head);
            separator = "\r\n";
        }
        let end_boundary = format!("\r\n--{boundary}--\r\n");
        let multipart = Multipart { boundary, slices, heads, end_boundary };
        let overhead = multipart.total_len() - slices.iter().map(|(start, end)| end - start).sum::<u64>();
        (overhead <= MAX_PART_OVERHEAD_BYTES * slices.len() as u64).then_some(multipart)
    }

    /// Returns the media type of the whole body.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// Returns the length of the whole body in bytes.
    pub fn total_len(&self) -> u64 {
        let heads = self.heads.iter().map(|head| head.len() as u64).sum::<u64>();
        heads + self.slices.iter().map(|(start, end)| end - start).sum::<u64>() + self.end_boundary.len() as u64
    }

    /// Returns whether coded bytes contain the boundary. They can be constructed to contain it, because an encoder can
    /// write chosen bytes between its codes.
    pub fn boundary_occurs_in(&self, parts: &[Bytes]) -> bool {
        let boundary = self.boundary.as_bytes();
        let overlap = boundary.len() - 1;
        // The last bytes before the current part: the boundary may begin in one part and end in another.
        let mut seam: Vec<u8> = Vec::with_capacity(2 * overlap);
        parts.iter().any(|part| {
            seam.extend_from_slice(&part[..part.len().min(overlap)]);
            let occurs = memmem::find(&seam, boundary).is_some() || memmem::find(part, boundary).is_some();
            if part.len() > overlap {
                seam.clear();
                seam.extend_from_slice(&part[part.len() - overlap..]);
            }
            seam.drain(..seam.len().saturating_sub(overlap));
            occurs
        })
    }

    /// Returns whether the parts are in the order of the file, so that one pass inflates them all.
    pub fn is_ascending(&self) -> bool {
        self.slices.is_sorted()
    }

    /// Returns the segments of the body.
    pub fn segments(self) -> impl Iterator<Item = BodySegment> {
        let parts = self.heads.into_iter().zip(self.slices);
        let parts = parts
            .flat_map(|(head, &(start, end))| [BodySegment::Bytes(head.into()), BodySegment::Inflated(start, end)]);
        parts.chain([BodySegment::Bytes(self.end_boundary.into())])
    }

    /// Returns the body, cut out of all the bytes of the representation.
    pub fn body(self, parts: &[Bytes]) -> ResponseBody {
        let mut pieces = Vec::with_capacity(self.slices.len() * 2 + 1);
        for (head, &(start, end)) in self.heads.into_iter().zip(self.slices) {
            pieces.push(Bytes::from(head));
            pieces.extend(ResponseBody::slice_parts(parts, start, end));
        }
        pieces.push(Bytes::from(self.end_boundary));
        ResponseBody::parts(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipart_overhead_of_each_part_is_limited_for_any_media_type() {
        let longest = "application/vnd.openxmlformats-officedocument.presentationml.presentation";
        let two_gib = 1 << 31;
        let slices = [(two_gib - 20, two_gib - 10), (two_gib - 10, two_gib)];
        let content = Digest::compute(b"x");
        let multipart =
            Multipart::new(&slices, two_gib, &content, longest, None).expect("the overhead is small enough");
        assert!(multipart.total_len() <= 20 + 2 * MAX_PART_OVERHEAD_BYTES);
        assert!(Multipart::new(&slices, two_gib, &content, &"x".repeat(300), None).is_none());
    }

    #[test]
    fn the_multipart_boundary_is_detected_in_coded_bytes_and_across_slices() {
        let content = Digest::compute(b"x");
        let multipart = Multipart::new(&[(0, 1), (2, 3)], 9, &content, "text/plain", Some("gzip"))
            .expect("the overhead is small enough");
        let boundary = multipart.boundary.clone().into_bytes();
        let whole = [b"before", &boundary[..], b"after"].concat();
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let pieces = [&whole[..first], &whole[first..second], &whole[second..]].map(Bytes::copy_from_slice);
                assert!(multipart.boundary_occurs_in(&pieces), "cut at {first} and {second}");
            }
        }
        let bytes: Vec<Bytes> = whole.iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect();
        assert!(multipart.boundary_occurs_in(&bytes));
        let mut others: Vec<Vec<u8>> = vec![b"0123456789abcdef0123456789abcdef".to_vec(), Vec::new()];
        // Without one of its characters, and with another one between two of them.
        others.push([&boundary[..5], &boundary[6..]].concat());
        others.push([&boundary[..5], b"x", &boundary[5..]].concat());
        for other in others {
            let (front, end) = other.split_at(other.len() / 3);
            let pieces = [front, end].map(Bytes::copy_from_slice);
            assert!(!multipart.boundary_occurs_in(&pieces), "{other:?}");
        }
    }

    #[test]
    fn multipart_byteranges_bodies_are_formatted_as_in_rfc_9110() {
        let content = Digest::compute(b"0123456789");
        let boundary = encode_hex(&content.0[8..20]);
        for coding in [None, Some("br")] {
            let slices = [(2, 5), (0, 1)];
            let multipart =
                || Multipart::new(&slices, 10, &content, "text/plain", coding).expect("the overhead is small enough");
            let coded = coding.map(|coding| format!("Content-Encoding: {coding}\r\n")).unwrap_or_default();
            let expected = format!(
                "--{boundary}\r\nContent-Type: text/plain\r\n{coded}Content-Range: bytes 2-4/10\r\n\r\n234\r\n\
                 --{boundary}\r\nContent-Type: text/plain\r\n{coded}Content-Range: bytes 0-0/10\r\n\r\n0\r\n\
                 --{boundary}--\r\n"
            );
            assert_eq!(multipart().total_len(), expected.len() as u64);
            assert_eq!(multipart().content_type(), format!("multipart/byteranges; boundary={boundary}"));
            assert_eq!(multipart().body(&["01234".into(), "56789".into()]).len(), expected.len() as u64);
            let body = multipart().segments().map(|segment| match segment {
                BodySegment::Bytes(bytes) => bytes,
                BodySegment::Inflated(start, end) => {
                    Bytes::copy_from_slice(&b"0123456789"[start as usize..end as usize])
                }
            });
            assert_eq!(body.collect::<Vec<_>>().concat(), expected.as_bytes());
        }
    }

    #[test]
    fn multipart_overhead_has_an_exact_limit_and_ascending_ranges_are_recognized() {
        let content = Digest::compute(b"x");
        let total_len = |type_len: usize, slices: &[(u64, u64)]| {
            Multipart::new(slices, 9, &content, &"x".repeat(type_len), None).map(|multipart| multipart.total_len())
        };
        let slices = [(0, 1), (2, 3)];
        let max_type_len =
            (1..300).rev().find(|&type_len| total_len(type_len, &slices).is_some()).expect("short media types fit");
        // Each letter of the media type occurs twice.
        assert!((399..=400).contains(&(total_len(max_type_len, &slices).unwrap() - 2)), "{max_type_len}");
        for (slices, expected) in
            [(&[(0, 1), (2, 3), (5, 9)][..], true), (&[(2, 3), (0, 1)], false), (&[(0, 1), (5, 9), (2, 3)], false)]
        {
            let multipart =
                Multipart::new(slices, 9, &content, "text/plain", None).expect("the overhead is small enough");
            assert_eq!(multipart.is_ascending(), expected, "{slices:?}");
        }
    }
}
