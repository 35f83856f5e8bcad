//! The dates and names of an X.509 certificate (RFC 5280 section 4.1). This parser verifies nothing.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
/// The tag of the version, which certificates of version 1 omit.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The fields that are read from a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateFields<'a> {
    /// The issuer's name in DER.
    pub issuer: &'a [u8],
    /// The subject's name in DER.
    pub subject: &'a [u8],
    /// `notBefore`.
    pub not_before: SystemTime,
    /// `notAfter`.
    pub not_after: SystemTime,
}

/// Returns `notAfter` of a certificate in DER; `None` if it is not a certificate.
pub fn parse_not_after(der: &[u8]) -> Option<SystemTime> {
    parse_certificate(der).map(|certificate| certificate.not_after)
}

/// Parses a certificate in DER; returns `None` if it is not a certificate.
pub fn parse_certificate(der: &[u8]) -> Option<CertificateFields<'_>> {
    let (certificate, _) = take_value(der, SEQUENCE)?;
    let (mut body, _) = take_value(certificate, SEQUENCE)?;
    if let Some((_, rest)) = take_value(body, VERSION) {
        body = rest;
    }
    // Serial number and signature algorithm.
    for _ in 0..2 {
        body = skip_value(body)?;
    }
    let (issuer, body) = take_value(body, SEQUENCE)?;
    let (validity, body) = take_value(body, SEQUENCE)?;
    let (subject, _) = take_value(body, SEQUENCE)?;
    Some(CertificateFields {
        issuer,
        subject,
        not_before: parse_der_time(validity)?,
        not_after: parse_der_time(skip_value(validity)?)?,
    })
}

/// Splits off a value with this tag; returns its content and the rest.
fn take_value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found_tag, content, rest) = split_value(der)?;
    (found_tag == tag).then_some((content, rest))
}

fn skip_value(der: &[u8]) -> Option<&[u8]> {
    split_value(der).map(|(_, _, rest)| rest)
}

/// Splits off one value: its tag, its content and the rest (X.690 section 8.1).
fn split_value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Parses `YYMMDDhhmmssZ`, or the form with four digits of the year (RFC 5280 section 4.1.2.5).
fn parse_der_time(der: &[u8]) -> Option<SystemTime> {
    let (tag, content, _) = split_value(der)?;
    let text = std::str::from_utf8(content).ok()?;
    let text = match tag {
        UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let date = DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    let seconds = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    // A date before 1970 counts as 1970: such a certificate has long been valid or expired.
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let mut out =
            if length < 128 { vec![tag, length as u8] } else { vec![tag, 0x82, (length >> 8) as u8, length as u8] };
        out.extend_from_slice(content);
        out
    }

    fn seconds(time: SystemTime) -> u64 {
        time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
    }

    fn certificate(version: bool, end: &[u8]) -> Vec<u8> {
        let validity = [der(UTC_TIME, b"200101000000Z"), end.to_vec()].concat();
        let version = if version { der(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let names = der(SEQUENCE, &[0; 300]);
        let subject = der(SEQUENCE, &[7; 5]);
        let body =
            [version, der(2, &[1; 16]), der(SEQUENCE, &[5, 0]), names, der(SEQUENCE, &validity), subject].concat();
        der(SEQUENCE, &der(SEQUENCE, &body))
    }

    #[test]
    fn certificate_expiry_is_read_from_both_date_formats_with_or_without_a_version() {
        for (tag, text) in [(UTC_TIME, &b"300203040506Z"[..]), (GENERALIZED_TIME, b"20300203040506Z")] {
            for version in [false, true] {
                let end = parse_not_after(&certificate(version, &der(tag, text))).unwrap();
                assert_eq!(seconds(end), 1_896_321_906);
                let certificate_der = certificate(version, &der(tag, text));
                let fields = parse_certificate(&certificate_der).unwrap();
                assert_eq!(seconds(fields.not_before), 1_577_836_800);
                assert_eq!((fields.issuer, fields.subject), (&[0; 300][..], &[7; 5][..]));
            }
        }
    }

    #[test]
    fn invalid_certificate_has_no_expiry() {
        let certificate_der = certificate(true, &der(UTC_TIME, b"300203040506Z"));
        for cut in 0..certificate_der.len() {
            assert_eq!(parse_not_after(&certificate_der[..cut]), None);
        }
        assert_eq!(parse_not_after(&certificate(true, &der(UTC_TIME, b"300203"))), None);
    }

    #[test]
    fn utc_time_with_a_two_digit_year_means_1950_to_2049() {
        for (tag, text, end) in [
            (UTC_TIME, &b"491231235959Z"[..], Some(2_524_607_999)),
            (UTC_TIME, b"500101000000Z", Some(0)),
            (UTC_TIME, b"700101000001Z", Some(1)),
            (GENERALIZED_TIME, b"20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, b"19691231235959Z", Some(0)),
            (GENERALIZED_TIME, b"300203040506Z", None),
            (UTC_TIME, b"300230040506Z", None),
            (UTC_TIME, b"300203040506", None),
            (UTC_TIME, b"\xff\xff0203040506Z", None),
            (UTC_TIME, b"", None),
            (0x16, b"300203040506Z", None),
        ] {
            assert_eq!(parse_der_time(&der(tag, text)).map(seconds), end, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn der_length_has_up_to_four_bytes_and_a_truncated_value_is_refused() {
        for (head, length) in [
            (&[4, 0][..], 0),
            (&[4, 0x7f], 127),
            (&[4, 0x81, 0x80], 128),
            (&[4, 0x82, 1, 2], 258),
            (&[4, 0x83, 0, 1, 0], 256),
            (&[4, 0x84, 0, 0, 1, 1], 257),
        ] {
            let value = [head, &vec![7; length], b"rest"].concat();
            assert_eq!(split_value(&value), Some((4, &vec![7; length][..], &b"rest"[..])));
            assert_eq!(split_value(&value[..head.len() + length]), Some((4, &vec![7; length][..], &b""[..])));
            for cut in [0, 1, head.len() - 1, (head.len() + length).saturating_sub(1)] {
                assert_eq!(split_value(&value[..cut]), None, "{cut} of {head:x?}");
            }
        }
        for invalid in [&[4, 0x80, 0, 0][..], &[4, 0x85, 0, 0, 0, 0, 1, 7], &[4, 0xff, 1]] {
            assert_eq!(split_value(invalid), None, "{invalid:x?}");
        }
        assert_eq!((take_value(&[4, 1, 7, 8], 4), take_value(&[4, 1, 7, 8], 5)), (Some((&[7][..], &[8][..])), None));
    }
}
