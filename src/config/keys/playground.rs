//! The keys of `[playground]`, and of the list `[[playground.allow]]`: the APIs to which "Try it" forms of the site may
//! send requests through docwharf.

use std::time::Duration;

use crate::config::key_table::{ConfigKey, KEY, Section, TableList, ValueType};

/// The methods that a target may allow. `CONNECT` opens a tunnel, and `TRACE` shows fields that clients must not see.
pub(in crate::config) const PLAYGROUND_METHODS: [&str; 7] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

pub(super) const PLAYGROUND: Section = Section {
    name: "playground",
    keys: &[
        ConfigKey {
            name: "playground.enabled",
            value_type: ValueType::Flag,
            default: "false",
            help: "whether pages of the site may send requests to the APIs of `[[playground.allow]]` through docwharf",
            comment: "Whether pages of the site may send requests to the APIs that [[playground.allow]] lists through \
                      docwharf, at /_docwharf/playground: \"Try it\" forms then need no CORS and no exception in a \
                      content security policy. All keys of [playground] change without a restart.",
            ..KEY
        },
        ConfigKey {
            name: "playground.timeout",
            value_type: ValueType::Duration { min: Duration::from_millis(100) },
            default: "\"30s\"",
            help: "time limit of a response of an API",
            comment: "Time limit of a whole response of an API.",
            ..KEY
        },
        ConfigKey {
            name: "playground.maxRequest",
            value_type: ValueType::Size { min: 1 << 10, max: 16 << 20 },
            default: "\"1MiB\"",
            help: "the largest body of a request; larger ones get a 413",
            comment: "The largest body of a request, and of a response. A larger request gets a 413, a larger response \
                      is cut.",
            ..KEY
        },
        ConfigKey {
            name: "playground.maxResponse",
            value_type: ValueType::Size { min: 1 << 10, max: 64 << 20 },
            default: "\"5MiB\"",
            help: "the largest body of a response; larger ones are cut",
            ..KEY
        },
        ConfigKey {
            name: "playground.perMinute",
            value_type: ValueType::Number { min: 1, max: 65_535 },
            default: "60",
            help: "requests of one client address in a minute; others get a 429",
            comment: "Requests of one client address in a minute. Others get a 429 with Retry-After.",
            ..KEY
        },
        ConfigKey {
            name: "playground.rewrite",
            value_type: ValueType::Flag,
            default: "false",
            help: "whether calls of `fetch` and `XMLHttpRequest` in pages to these APIs go through docwharf",
            comment: "Whether a script in each page sends its calls of fetch and XMLHttpRequest to these APIs through \
                      docwharf. Forms that were made for requests from the browser then work as they are.",
            ..KEY
        },
    ],
};

pub(super) const PLAYGROUND_ALLOW: TableList = TableList {
    name: "playground.allow",
    keys: &[
        ConfigKey {
            name: "playground.allow.origin",
            value_type: ValueType::Url,
            help: "scheme, host and port of an API, such as `https://api.example.com`",
            ..KEY
        },
        ConfigKey {
            name: "playground.allow.methods",
            value_type: ValueType::Words(&PLAYGROUND_METHODS),
            help: "the methods that requests may have; default: `GET`",
            ..KEY
        },
        ConfigKey {
            name: "playground.allow.paths",
            value_type: ValueType::Texts,
            help: "the paths that requests may have; `*` stands for any text; default: all",
            ..KEY
        },
        ConfigKey {
            name: "playground.allow.addresses",
            value_type: ValueType::Texts,
            help: "addresses and ranges that the API may have although they are not public",
            ..KEY
        },
    ],
    lists: &[],
};
