//! Tests of queries on whole indexes.

mod languages;
mod matching;
mod results;
mod tiers;
