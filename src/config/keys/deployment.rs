//! The keys of `[deployment]`: where this docwharf runs, and to which addresses it may connect.

use crate::config::key_table::{ConfigKey, KEY, Section, ValueType};

/// The section; an origin has it too.
pub(in crate::config) const DEPLOYMENT: Section = Section {
    name: "deployment",
    keys: &[
        ConfigKey {
            name: "deployment.type",
            value_type: ValueType::Word(&["client-hosted", "cloud", "air-gapped"]),
            default: "\"client-hosted\"",
            help: "where docwharf runs; `air-gapped`: no connection except to loopback and `deployment.allow`",
            comment: "Where docwharf runs: \"client-hosted\", \"cloud\" or \"air-gapped\". \"air-gapped\": docwharf \
                      opens no connection except to loopback and to the addresses of allow, and asks no name server. \
                      A host name in a key is looked up in /etc/hosts only. A key that leads elsewhere is a mistake. \
                      Proxies in the environment are ignored.",
            ..KEY
        },
        ConfigKey {
            name: "deployment.allow",
            value_type: ValueType::Texts,
            default: "[]",
            help: "addresses and ranges, each with or without a port, to which an air-gapped docwharf may connect",
            comment: "The addresses and ranges to which an air-gapped docwharf may connect besides loopback, each with \
                      or without a port: \"10.0.0.5:443\", \"10.0.0.0/8\", \"[fd00::/8]:443\". Names are not allowed.",
            ..KEY
        },
    ],
};
