//! What an archive may cost (`[limits]` in the configuration).

/// Limits on one bundle. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries of any kind.
    pub entries: u64,
    /// Content of all files together.
    pub unpacked: u64,
    /// The archive itself.
    pub archive: u64,
    /// Content of one file.
    pub entry: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { entries: 200_000, unpacked: 8 << 30, archive: 4 << 30, entry: 2 << 30 }
    }
}

/// Below this much output no ratio is suspicious.
pub const BOMB_FLOOR: u64 = 64 << 20;
/// Output over input beyond which an archive is a bomb.
pub const BOMB_RATIO: u64 = 200;
/// All paths of a bundle together; without it 200,000 names of 4 KiB would take 800 MB.
pub const PATH_BYTES: u64 = 64 << 20;

/// Whether `output` bytes decoded from `input` bytes are a bomb (rules A6).
pub fn is_bomb(output: u64, input: u64) -> bool {
    output > BOMB_FLOOR && output > input.saturating_mul(BOMB_RATIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_over_the_floor_and_over_the_ratio() {
        for (output, input, is_a_bomb) in [
            (64 << 20, 0, false),
            ((64 << 20) + 1, 0, true),
            (20 << 20, 20 << 10, false),
            (200 << 20, 1 << 20, false),
            ((200 << 20) + 1, 1 << 20, true),
            (96 << 20, (96 << 20) / 50, false),
            (u64::MAX, u64::MAX / 2, false),
        ] {
            assert_eq!(is_bomb(output, input), is_a_bomb, "{output} of {input}");
        }
    }

    #[test]
    fn without_limits_of_its_own_a_bundle_has_those_of_the_manual() {
        let limits = Limits { entries: 200_000, unpacked: 8 << 30, archive: 4 << 30, entry: 2 << 30 };
        assert_eq!(Limits::default(), limits);
    }
}
