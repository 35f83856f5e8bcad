//! The keys of the lists `[[server.redirects]]` and `[[server.headers]]`: the operator's rules.

use crate::config::key_table::{ConfigKey, KEY, TableList, ValueType};

pub(super) const REDIRECTS: TableList = TableList {
    name: "server.redirects",
    keys: &[
        ConfigKey {
            name: "server.redirects.source",
            value_type: ValueType::Text,
            help: "the address, below the base path",
            ..KEY
        },
        ConfigKey {
            name: "server.redirects.destination",
            value_type: ValueType::Text,
            help: "where the redirect leads",
            ..KEY
        },
        ConfigKey {
            name: "server.redirects.permanent",
            value_type: ValueType::Flag,
            help: "308 instead of 307",
            ..KEY
        },
        ConfigKey {
            name: "server.redirects.status",
            value_type: ValueType::Status,
            help: "the status, instead of `permanent`",
            ..KEY
        },
        ConfigKey {
            name: "server.redirects.force",
            value_type: ValueType::Flag,
            help: "whether it also applies where the site has a file",
            ..KEY
        },
    ],
    lists: &[],
};

pub(super) const HEADERS: TableList = TableList {
    name: "server.headers",
    keys: &[
        ConfigKey {
            name: "server.headers.source",
            value_type: ValueType::Text,
            help: "the addresses; `*` stands for any text",
            ..KEY
        },
        ConfigKey {
            name: "server.headers.values",
            value_type: ValueType::TextTable,
            help: "header fields that responses get",
            ..KEY
        },
        ConfigKey {
            name: "server.headers.remove",
            value_type: ValueType::Texts,
            help: "header fields that are removed from responses",
            ..KEY
        },
    ],
    lists: &[],
};
