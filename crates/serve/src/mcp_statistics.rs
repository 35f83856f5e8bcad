//! Counts of the requests of the Model Context Protocol: by operation and outcome.

use std::sync::atomic::{AtomicU64, Ordering};

/// An operation of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpOperation {
    /// The tool `search_docs`.
    SearchDocs,
    /// The tool `read_page`.
    ReadPage,
    /// The tool `list_pages`.
    ListPages,
    /// The list of resources.
    ListResources,
    /// The reading of a resource.
    ReadResource,
    /// Everything else: the start of a connection, lists of tools and templates, unknown methods, and requests that are
    /// refused before they are read.
    Other,
}

impl McpOperation {
    /// All operations.
    pub const ALL: [McpOperation; 6] = [
        McpOperation::SearchDocs,
        McpOperation::ReadPage,
        McpOperation::ListPages,
        McpOperation::ListResources,
        McpOperation::ReadResource,
        McpOperation::Other,
    ];

    /// The name of the operation in metrics.
    pub fn name(self) -> &'static str {
        match self {
            McpOperation::SearchDocs => "search_docs",
            McpOperation::ReadPage => "read_page",
            McpOperation::ListPages => "list_pages",
            McpOperation::ListResources => "list_resources",
            McpOperation::ReadResource => "read_resource",
            McpOperation::Other => "other",
        }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpOutcome {
    /// It was answered.
    Ok,
    /// The arguments do not fit, or there is no such page: the answer is advice.
    Advice,
    /// There is no search index yet.
    Indexing,
    /// Too many requests at a time, or it waited for too long: status 503, or advice to call again.
    Busy,
    /// Too many requests of one address: status 429.
    Limited,
    /// The message or its header fields are refused: status 400, 403, 404, 406, 408, 413 or 415.
    Refused,
    /// The page or the index cannot be read.
    Failed,
}

impl McpOutcome {
    /// All outcomes.
    pub const ALL: [McpOutcome; 7] = [
        McpOutcome::Ok,
        McpOutcome::Advice,
        McpOutcome::Indexing,
        McpOutcome::Busy,
        McpOutcome::Limited,
        McpOutcome::Refused,
        McpOutcome::Failed,
    ];

    /// The name of the outcome in metrics.
    pub fn name(self) -> &'static str {
        match self {
            McpOutcome::Ok => "ok",
            McpOutcome::Advice => "advice",
            McpOutcome::Indexing => "indexing",
            McpOutcome::Busy => "busy",
            McpOutcome::Limited => "limited",
            McpOutcome::Refused => "refused",
            McpOutcome::Failed => "failed",
        }
    }
}

/// The counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpStatistics([[u64; McpOutcome::ALL.len()]; McpOperation::ALL.len()]);

impl McpStatistics {
    /// Returns the number of requests for this operation with this outcome.
    pub fn count(&self, operation: McpOperation, outcome: McpOutcome) -> u64 {
        self.0[operation as usize][outcome as usize]
    }
}

/// The counters of a site.
#[derive(Debug, Default)]
pub(super) struct McpCounters([[AtomicU64; McpOutcome::ALL.len()]; McpOperation::ALL.len()]);

impl McpCounters {
    /// Counts a request.
    pub(super) fn count(&self, operation: McpOperation, outcome: McpOutcome) {
        self.0[operation as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub(super) fn read(&self) -> McpStatistics {
        McpStatistics(self.0.each_ref().map(|row| row.each_ref().map(|count| count.load(Ordering::Relaxed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_outcome() {
        let counters = McpCounters::default();
        for (times, operation) in McpOperation::ALL.into_iter().enumerate() {
            for _ in 0..times {
                counters.count(operation, McpOutcome::ALL[times]);
            }
        }
        let statistics = counters.read();
        for (times, operation) in McpOperation::ALL.into_iter().enumerate() {
            for (index, outcome) in McpOutcome::ALL.into_iter().enumerate() {
                let expected = if index == times { times as u64 } else { 0 };
                assert_eq!(statistics.count(operation, outcome), expected, "{operation:?} {outcome:?}");
            }
        }
    }
}
