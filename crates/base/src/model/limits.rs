//! Limits on bundles (`[limits]` in the configuration), and the definition of a decompression bomb.

/// Limits on one bundle. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleLimits {
    /// The number of entries of any type.
    pub entries: u64,
    /// The content of all files together, in bytes.
    pub unpacked: u64,
    /// The archive file itself, in bytes.
    pub archive: u64,
    /// The content of one file, in bytes.
    pub entry: u64,
}

impl Default for BundleLimits {
    fn default() -> Self {
        BundleLimits { entries: 200_000, unpacked: 8 << 30, archive: 4 << 30, entry: 2 << 30 }
    }
}

/// The output in bytes up to which no expansion ratio counts as a bomb.
pub const MIN_BOMB_BYTES: u64 = 64 << 20;
/// The ratio of output to input above which an archive is a bomb.
pub const MAX_EXPANSION_RATIO: u64 = 200;
/// The largest total length of all paths of a bundle, in bytes. Without this limit 200,000 names of 4 KiB would need
/// 800 MB of memory.
pub const MAX_TOTAL_PATH_BYTES: u64 = 64 << 20;

/// Whether `output` bytes decoded from `input` bytes are a decompression bomb (docs/design/archives.md, rule 6).
pub fn is_decompression_bomb(output: u64, input: u64) -> bool {
    output > MIN_BOMB_BYTES && output > input.saturating_mul(MAX_EXPANSION_RATIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decompression_bomb_exceeds_both_the_minimum_size_and_the_ratio() {
        for (output, input, expected) in [
            (64 << 20, 0, false),
            ((64 << 20) + 1, 0, true),
            (20 << 20, 20 << 10, false),
            (200 << 20, 1 << 20, false),
            ((200 << 20) + 1, 1 << 20, true),
            (96 << 20, (96 << 20) / 50, false),
            (u64::MAX, u64::MAX / 2, false),
        ] {
            assert_eq!(is_decompression_bomb(output, input), expected, "{output} of {input}");
        }
    }

    #[test]
    fn default_bundle_limits_are_the_documented_ones() {
        let limits = BundleLimits { entries: 200_000, unpacked: 8 << 30, archive: 4 << 30, entry: 2 << 30 };
        assert_eq!(BundleLimits::default(), limits);
    }
}
