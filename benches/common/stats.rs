//! Medians, and pairs of measurements of one round.

/// The median. NaN without values, which tables show as a dash.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The smallest value that at least the share `share` of all values does not exceed.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let enough = |index: &usize| (index + 1) as f64 >= sorted.len() as f64 * share;
    (0..sorted.len()).find(enough).map_or(f64::NAN, |index| sorted[index])
}

/// Median, least and greatest of the ratios within the rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

/// The ratios of all rounds. `None` without a common round.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    let least = ratios.iter().copied().reduce(f64::min)?;
    let greatest = ratios.iter().copied().reduce(f64::max)?;
    Some(Ratio { median: median(&ratios), least, greatest })
}

/// Shuffles in an order that depends only on the seed (xorshift), so that all servers and runs get the same order.
pub(crate) fn shuffle<T>(values: &mut [T], seed: u64) {
    let mut state = seed | 1;
    for index in (1..values.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values.swap(index, (state % (index as u64 + 1)) as usize);
    }
}
