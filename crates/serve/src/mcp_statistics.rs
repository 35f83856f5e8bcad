//! The operations of the Model Context Protocol and the outcomes of requests, by which they are counted.

use super::outcome_counts::{CountLabel, OutcomeCounts};

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

impl CountLabel for McpOperation {
    const KEY: &'static str = "operation";
    const ALL: &'static [McpOperation] = &[
        McpOperation::SearchDocs,
        McpOperation::ReadPage,
        McpOperation::ListPages,
        McpOperation::ListResources,
        McpOperation::ReadResource,
        McpOperation::Other,
    ];

    fn name(self) -> &'static str {
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

impl CountLabel for McpOutcome {
    const KEY: &'static str = "outcome";
    const ALL: &'static [McpOutcome] = &[
        McpOutcome::Ok,
        McpOutcome::Advice,
        McpOutcome::Indexing,
        McpOutcome::Busy,
        McpOutcome::Limited,
        McpOutcome::Refused,
        McpOutcome::Failed,
    ];

    fn name(self) -> &'static str {
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

/// The counts of requests by operation and outcome.
pub type McpCounts = OutcomeCounts<McpOutcome, McpOperation>;
