//! Search analytics: the period that is asked for.

pub mod period;
