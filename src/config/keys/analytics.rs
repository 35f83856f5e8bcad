//! The keys of `[analytics]` and `[analytics.deliver]`: what this host records about its readers, who may read it, and
//! to which origin it is delivered.

use std::time::Duration;

use crate::config::key_table::{ConfigKey, KEY, Section, ValueType};

pub(super) const ANALYTICS: Section = Section {
    name: "analytics",
    keys: &[
        ConfigKey {
            name: "analytics.enabled",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether `run` records what readers search for and read",
            comment: "`run` records what readers search for and read, in analytics.db in the store: no cookie, no \
                      address, nothing that identifies a reader. `docwharf analytics` shows it. false: nothing is \
                      recorded, and no file is made. All keys of [analytics] change without a restart.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.searches",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether searches and clicks on their results are recorded",
            comment: "Whether searches and clicks on their results are recorded.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.pages",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether views of pages are counted",
            comment: "Whether views of pages are counted by day: with the pages on which visits begin, the hosts that \
                      lead readers here, paths that do not exist, and the programs that read pages.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.projectId",
            value_type: ValueType::Text,
            default_note: "`api.projectId`, else `site`",
            example: "\"site\"",
            help: "the project in the addresses `/v1/analytics/{projectId}/…`",
            comment: "The project in the addresses /v1/analytics/{projectId}/… of admin.listen and the control socket. \
                      Default: api.projectId, else \"site\".",
            ..KEY
        },
        ConfigKey {
            name: "analytics.keyFile",
            value_type: ValueType::Path,
            example: "\"analytics-keys\"",
            help: "the bearer keys for these addresses on `admin.listen`, one a line; without it: 403",
            comment: "The file with the bearer keys for these addresses on admin.listen: one a line, at most 100, each \
                      16 to 512 visible ASCII characters; a line that begins with # is a comment. Only its owner and \
                      group should be able to read it (mode 0640). docwharf reads it again when it changes. The \
                      control socket asks for no key. Without keyFile, these addresses answer with 403 on \
                      admin.listen. No default.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.keep",
            value_type: ValueType::Duration { min: Duration::from_hours(24) },
            default: "\"400d\"",
            help: "how long searches and counts are kept",
            comment: "How long searches and counts are kept.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.maxBytes",
            value_type: ValueType::Size { min: 1 << 20, max: u64::MAX },
            default: "\"1GiB\"",
            help: "space for searches and counts; beyond it, the oldest days are deleted",
            comment: "The space that searches and counts may take. Beyond it, the oldest days are deleted.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.mask",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether secrets (e-mail addresses, tokens) in search terms, hosts of referrers and paths that do not \
                   exist are replaced by `[masked]`",
            comment: "Whether secrets are replaced by [masked] before anything is stored: e-mail addresses, JSON web \
                      tokens, and words that look random (24 or more letters and digits), in search terms, hosts of \
                      referrers and paths that do not exist.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.respectOptOut",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether nothing is recorded of requests with `Sec-GPC: 1` or `DNT: 1`",
            comment: "Whether nothing is recorded of requests with Sec-GPC: 1 or DNT: 1. Browsers send these fields for \
                      readers who object to being tracked.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.bots",
            value_type: ValueType::Path,
            example: "\"bots.txt\"",
            help: "a file with patterns of the `User-Agent` that decide before the built-in ones",
            comment: "A file with patterns that distinguish programs from people by the User-Agent, and that decide \
                      before the built-in ones. A line has a class (human, ai or bot) and a text that occurs in the \
                      User-Agent: bot Intranet-Checker/. docwharf watches the file. A mistake in it is a mistake in \
                      the configuration. No default.",
            ..KEY
        },
    ],
};

pub(super) const ANALYTICS_DELIVERY: Section = Section {
    name: "analytics.deliver",
    keys: &[
        ConfigKey {
            name: "analytics.deliver.baseUrl",
            value_type: ValueType::Url,
            example: "\"https://origin.example.com/v1\"",
            help: "the API of an origin, to which `run` delivers what it records; without it: nowhere",
            comment: "The API of an origin, to which `run` delivers what it records. What the origin has not acknowledged \
                      waits in analytics.db. An origin counts each search and view once, however often it is sent. \
                      Without baseUrl, nothing is delivered. No default.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.deliver.projectId",
            value_type: ValueType::Text,
            default_note: "`analytics.projectId`",
            example: "\"site\"",
            help: "the project of the origin to which it is added",
            comment: "The project of the origin to which it is added. Default: analytics.projectId.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.deliver.keyFile",
            value_type: ValueType::Path,
            example: "\"origin-key\"",
            help: "the file with a key of the origin that may write; needed with `baseUrl`",
            comment: "The file with a key of the origin that may write (scope write). Only its owner and group should be \
                      able to read it (mode 0640). docwharf reads it again for each delivery. No default.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.deliver.interval",
            value_type: ValueType::Duration { min: Duration::from_secs(1) },
            default: "\"60s\"",
            help: "the time between two deliveries",
            comment: "The time between two deliveries. After a failure, docwharf waits at least as long, and longer after \
                      each further one, up to 10 minutes, or as long as the origin demands.",
            ..KEY
        },
        ConfigKey {
            name: "analytics.deliver.queue",
            value_type: ValueType::Size { min: 1 << 20, max: u64::MAX },
            default: "\"64MiB\"",
            help: "the searches that may wait for the origin, in bytes; beyond it, the oldest are not delivered",
            comment: "The searches that may wait for the origin, in bytes. Beyond it, the oldest are not delivered; this \
                      host keeps them, and `docwharf analytics export` has them. Counts of views always wait, because \
                      they do not grow with time.",
            ..KEY
        },
    ],
};
