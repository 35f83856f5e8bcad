//! The keys of `[staticExport]`, `[api]`, `[sync]` and `[network]`: where bundles come from, and when.

use std::time::Duration;

use crate::config::key_table::{ConfigKey, KEY, Section, ValueType};

pub(super) const STATIC_EXPORT: Section = Section {
    name: "staticExport",
    keys: &[
        ConfigKey {
            name: "staticExport.enabled",
            value_type: ValueType::Flag,
            default: "true",
            help: "false: serve the active version, send no requests to a source",
            comment: "false: docwharf serves the active version and sends no requests to a source.",
            ..KEY
        },
        ConfigKey {
            name: "staticExport.bundleUrl",
            value_type: ValueType::Location,
            example: "\"/media/usb/bundle.tar.gz\"",
            help: "https, http or file URL, or path, of a bundle; a secret",
            comment: "The bundle: the path of an archive, a file:// URL, or an http(s) link. It is not \
                      needed if [api] makes the bundles. A signed link is a secret: `config show` masks \
                      it. With [api], the link is used for the empty store only. No default.",
            ..KEY
        },
        ConfigKey {
            name: "staticExport.bundleUrlFile",
            value_type: ValueType::Path,
            example: "\"/run/secrets/bundle-url\"",
            help: "instead of `bundleUrl`: a file that contains it, such as a mounted secret",
            comment: "Instead of bundleUrl: a file that contains the link and nothing else, such as a mounted secret. \
                      docwharf reads the file again when the file changes. No default.",
            ..KEY
        },
        ConfigKey {
            name: "staticExport.version",
            value_type: ValueType::Text,
            example: "\"2026-11\"",
            help: "pin: serve this label and no other",
            comment: "Serve this label and no other. No default.",
            ..KEY
        },
        ConfigKey {
            name: "staticExport.sha256",
            value_type: ValueType::Text,
            example: "\"0000000000000000000000000000000000000000000000000000000000000000\"",
            help: "accept this archive only",
            comment: "Accept this archive only. No default.",
            ..KEY
        },
    ],
};

pub(super) const API: Section = Section {
    name: "api",
    keys: &[
        ConfigKey {
            name: "api.baseUrl",
            value_type: ValueType::Url,
            example: "\"https://api.example.com/v1\"",
            help: "the management API; needs `api.domain`",
            comment: "The management API, including its /v1. docwharf exports bundles through it. No \
                      default; baseUrl needs domain.",
            ..KEY
        },
        ConfigKey {
            name: "api.domain",
            value_type: ValueType::Text,
            example: "\"docs.example.com\"",
            help: "the host name of the site to export",
            comment: "The site to export: a host name.",
            ..KEY
        },
        ConfigKey {
            name: "api.projectId",
            value_type: ValueType::Text,
            example: "\"0123456789\"",
            help: "the project, for previews and analytics",
            comment: "The project, for previews and analytics.",
            ..KEY
        },
        ConfigKey {
            name: "api.keyFile",
            value_type: ValueType::Path,
            example: "\"api-key\"",
            help: "the API key; else `$DOCWHARF_API_KEY`, else the systemd credential `api-key`",
            comment: "The file with the API key; docwharf reads the file again when the file \
                      changes. Without it: $DOCWHARF_API_KEY, then the systemd credential api-key.",
            ..KEY
        },
        ConfigKey {
            name: "api.caFile",
            value_type: ValueType::Path,
            example: "\"company-ca.pem\"",
            help: "additional root certificates; the others are the system's, or those of `SSL_CERT_FILE` and \
                   `SSL_CERT_DIR`",
            comment: "Additional root certificates (PEM). The others are the system's, or those of SSL_CERT_FILE and \
                      SSL_CERT_DIR.",
            ..KEY
        },
        ConfigKey {
            name: "api.statusPath",
            value_type: ValueType::Text,
            default: "\"/project/update-status/{statusId}\"",
            help: "path of a preview's state, below `api.baseUrl`",
            comment: "The path of a preview's state, below baseUrl. {statusId} and {projectId} are \
                      replaced.",
            ..KEY
        },
    ],
};

pub(super) const SYNC: Section = Section {
    name: "sync",
    keys: &[
        ConfigKey {
            name: "sync.interval",
            value_type: ValueType::Duration { min: Duration::from_millis(100) },
            default: "\"15m\"",
            default_note: "`15m`; `24h` with `[api]` and `probe = []`",
            help: "how often to check for a new version",
            comment: "How often `run` checks for a new version; the interval varies by a tenth. With \
                      [api], it reads the probes below. If an interval is set but no probes, each check starts an export. \
                      With [api] and an empty list of probes, the default is 24h.",
            ..KEY
        },
        ConfigKey {
            name: "sync.schedule",
            value_type: ValueType::Text,
            example: "\"15 4 * * 1-5\"",
            help: "instead of the interval: five fields of cron in local time",
            comment: "Instead of the interval: minute, hour, day, month, weekday, in local time. No \
                      default.",
            ..KEY
        },
        ConfigKey {
            name: "sync.probe",
            value_type: ValueType::Urls,
            default_note: "`sitemap.xml` and `llms.txt` of the domain; `[]` if a host that is air-gapped may not \
                           connect to it",
            example: "[\"https://docs.example.com/sitemap.xml\", \"https://docs.example.com/llms.txt\"]",
            help: "addresses whose change starts an export",
            comment: "With [api]: addresses that show whether content has changed. Each check reads them, \
                      and only a change starts an export. If the list is empty, or an interval or \
                      schedule is set without this key, each check starts an export. Default: the domain's \
                      sitemap.xml and llms.txt; none if deployment.type is \"air-gapped\" and the domain is not \
                      allowed.",
            ..KEY
        },
        ConfigKey {
            name: "sync.maxAge",
            value_type: ValueType::Duration { min: Duration::from_secs(1) },
            default: "\"24h\"",
            help: "the time after which to export without a change",
            comment: "After this time without a successful export, an export starts even if the probes \
                      show no change.",
            ..KEY
        },
        ConfigKey {
            name: "sync.inbox",
            value_type: ValueType::Path,
            example: "\"inbox\"",
            help: "the inbox, a folder: bundles that are put there are imported",
            comment: "A folder: bundles in it are imported, then moved to accepted/ or, with the reason, \
                      to rejected/. No default.",
            ..KEY
        },
        ConfigKey {
            name: "sync.jobTimeout",
            value_type: ValueType::Duration { min: Duration::from_secs(1) },
            default: "\"30m\"",
            help: "the longest time to wait for an export job",
            comment: "The longest time to wait for an export job.",
            ..KEY
        },
        ConfigKey {
            name: "sync.keep",
            value_type: ValueType::Number { min: 0, max: 10_000 },
            default: "3",
            help: "versions to keep besides protected ones",
            comment: "Versions to keep besides the active, previous, newest and labelled ones.",
            ..KEY
        },
        ConfigKey {
            name: "sync.threads",
            value_type: ValueType::Number { min: 1, max: 256 },
            default_note: "half the cores in `run`, all in `sync` and `import`",
            example: "2",
            help: "processors for verifying and compressing in `run`, `sync` and `import`",
            comment: "Processors for verifying and compressing. Default: half of them in `run`, all in \
                      `sync` and `import`. Other commands use all.",
            ..KEY
        },
    ],
};

pub(super) const NETWORK: Section = Section {
    name: "network",
    keys: &[
        ConfigKey {
            name: "network.connectTimeout",
            value_type: ValueType::Duration { min: Duration::from_millis(10) },
            default: "\"10s\"",
            help: "time limit of connecting",
            comment: "Time limit of connecting.",
            ..KEY
        },
        ConfigKey {
            name: "network.callTimeout",
            value_type: ValueType::Duration { min: Duration::from_millis(10) },
            default: "\"30s\"",
            help: "time limit of an API call",
            comment: "Time limit of a whole API call.",
            ..KEY
        },
        ConfigKey {
            name: "network.idleTimeout",
            value_type: ValueType::Duration { min: Duration::from_millis(10) },
            default: "\"30s\"",
            help: "time limit of a download without a byte",
            comment: "Time limit of a download without a byte; the whole download has no limit.",
            ..KEY
        },
        ConfigKey {
            name: "network.pollFirst",
            value_type: ValueType::Duration { min: Duration::from_millis(10) },
            default: "\"1s\"",
            help: "the first pause between polls of a job",
            comment: "Pauses between polls of an export job. They grow from the first value to the \
                      second.",
            ..KEY
        },
        ConfigKey {
            name: "network.pollMost",
            value_type: ValueType::Duration { min: Duration::from_millis(10) },
            default: "\"10s\"",
            help: "the longest pause between polls of a job",
            ..KEY
        },
        ConfigKey {
            name: "network.redirects",
            value_type: ValueType::Number { min: 0, max: 100 },
            default: "10",
            help: "redirects that a link may have",
            comment: "The largest number of redirects of a link.",
            ..KEY
        },
    ],
};
