//! The tables of RFC 7541, independent of those in the program.

/// The static table (appendix A). The first entry has index 1.
#[rustfmt::skip]
pub const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// The Huffman codes of the symbols (appendix B). The last one is EOS.
#[rustfmt::skip]
pub const HUFFMAN_CODES: [u32; 257] = [
    0x1ff8, 0x7f_ffd8, 0xfff_ffe2, 0xfff_ffe3, 0xfff_ffe4, 0xfff_ffe5, 0xfff_ffe6, 0xfff_ffe7, 0xfff_ffe8, 0xff_ffea,
    0x3fff_fffc, 0xfff_ffe9, 0xfff_ffea, 0x3fff_fffd, 0xfff_ffeb, 0xfff_ffec, 0xfff_ffed, 0xfff_ffee, 0xfff_ffef,
    0xfff_fff0, 0xfff_fff1, 0xfff_fff2, 0x3fff_fffe, 0xfff_fff3, 0xfff_fff4, 0xfff_fff5, 0xfff_fff6, 0xfff_fff7,
    0xfff_fff8, 0xfff_fff9, 0xfff_fffa, 0xfff_fffb, 0x14, 0x3f8, 0x3f9, 0xffa, 0x1ff9, 0x15, 0xf8, 0x7fa, 0x3fa,
    0x3fb, 0xf9, 0x7fb, 0xfa, 0x16, 0x17, 0x18, 0x0, 0x1, 0x2, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x5c, 0xfb,
    0x7ffc, 0x20, 0xffb, 0x3fc, 0x1ffa, 0x21, 0x5d, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
    0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0xfc, 0x73, 0xfd, 0x1ffb, 0x7_fff0, 0x1ffc, 0x3ffc,
    0x22, 0x7ffd, 0x3, 0x23, 0x4, 0x24, 0x5, 0x25, 0x26, 0x27, 0x6, 0x74, 0x75, 0x28, 0x29, 0x2a, 0x7, 0x2b, 0x76,
    0x2c, 0x8, 0x9, 0x2d, 0x77, 0x78, 0x79, 0x7a, 0x7b, 0x7ffe, 0x7fc, 0x3ffd, 0x1ffd, 0xfff_fffc, 0xf_ffe6,
    0x3f_ffd2, 0xf_ffe7, 0xf_ffe8, 0x3f_ffd3, 0x3f_ffd4, 0x3f_ffd5, 0x7f_ffd9, 0x3f_ffd6, 0x7f_ffda, 0x7f_ffdb,
    0x7f_ffdc, 0x7f_ffdd, 0x7f_ffde, 0xff_ffeb, 0x7f_ffdf, 0xff_ffec, 0xff_ffed, 0x3f_ffd7, 0x7f_ffe0, 0xff_ffee,
    0x7f_ffe1, 0x7f_ffe2, 0x7f_ffe3, 0x7f_ffe4, 0x1f_ffdc, 0x3f_ffd8, 0x7f_ffe5, 0x3f_ffd9, 0x7f_ffe6, 0x7f_ffe7,
    0xff_ffef, 0x3f_ffda, 0x1f_ffdd, 0xf_ffe9, 0x3f_ffdb, 0x3f_ffdc, 0x7f_ffe8, 0x7f_ffe9, 0x1f_ffde, 0x7f_ffea,
    0x3f_ffdd, 0x3f_ffde, 0xff_fff0, 0x1f_ffdf, 0x3f_ffdf, 0x7f_ffeb, 0x7f_ffec, 0x1f_ffe0, 0x1f_ffe1, 0x3f_ffe0,
    0x1f_ffe2, 0x7f_ffed, 0x3f_ffe1, 0x7f_ffee, 0x7f_ffef, 0xf_ffea, 0x3f_ffe2, 0x3f_ffe3, 0x3f_ffe4, 0x7f_fff0,
    0x3f_ffe5, 0x3f_ffe6, 0x7f_fff1, 0x3ff_ffe0, 0x3ff_ffe1, 0xf_ffeb, 0x7_fff1, 0x3f_ffe7, 0x7f_fff2, 0x3f_ffe8,
    0x1ff_ffec, 0x3ff_ffe2, 0x3ff_ffe3, 0x3ff_ffe4, 0x7ff_ffde, 0x7ff_ffdf, 0x3ff_ffe5, 0xff_fff1, 0x1ff_ffed,
    0x7_fff2, 0x1f_ffe3, 0x3ff_ffe6, 0x7ff_ffe0, 0x7ff_ffe1, 0x3ff_ffe7, 0x7ff_ffe2, 0xff_fff2, 0x1f_ffe4, 0x1f_ffe5,
    0x3ff_ffe8, 0x3ff_ffe9, 0xfff_fffd, 0x7ff_ffe3, 0x7ff_ffe4, 0x7ff_ffe5, 0xf_ffec, 0xff_fff3, 0xf_ffed, 0x1f_ffe6,
    0x3f_ffe9, 0x1f_ffe7, 0x1f_ffe8, 0x7f_fff3, 0x3f_ffea, 0x3f_ffeb, 0x1ff_ffee, 0x1ff_ffef, 0xff_fff4, 0xff_fff5,
    0x3ff_ffea, 0x7f_fff4, 0x3ff_ffeb, 0x7ff_ffe6, 0x3ff_ffec, 0x3ff_ffed, 0x7ff_ffe7, 0x7ff_ffe8, 0x7ff_ffe9,
    0x7ff_ffea, 0x7ff_ffeb, 0xfff_fffe, 0x7ff_ffec, 0x7ff_ffed, 0x7ff_ffee, 0x7ff_ffef, 0x7ff_fff0, 0x3ff_ffee,
    0x3fff_ffff,
];

/// The number of bits of each code.
#[rustfmt::skip]
pub const HUFFMAN_CODE_BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6,
    12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15,
    5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20,
    22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22,
    23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26,
    27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
