//! The keys of `[analytics]`: what this host records about its readers, and who may read it.

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
