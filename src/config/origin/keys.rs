//! The keys of an origin's configuration: the reader, docs/origin.md and origin.example.toml agree with this table.

use std::time::Duration;

use super::limits::{ORGANIZATION_LIMITS, TOTAL_LIMITS};
use crate::config::key_table::{ANY_SIZE, ConfigKey, KEY, KeyTable, Section, TableList, ValueType};
use crate::config::keys::DEPLOYMENT;

/// The table.
pub(super) static ORIGIN_KEYS: KeyTable = KeyTable {
    sections: &[SERVER, TLS, ADMIN, DEPLOYMENT, STORE, EXPORTS, PREVIEWS, ANALYTICS, ORGANIZATION_LIMITS, TOTAL_LIMITS],
    lists: &[ORGANIZATION],
};

const ANY_DURATION: ValueType = ValueType::Duration { min: Duration::ZERO };
/// A number of things of which an origin needs at least one.
const POSITIVE: ValueType = ValueType::Number { min: 1, max: 1_000_000 };

const SERVER: Section = Section {
    name: "server",
    keys: &[
        ConfigKey {
            name: "server.listen",
            value_type: ValueType::Texts,
            default: "[\"127.0.0.1:8090\"]",
            help: "one address or a list; `[]` is allowed with `tls.listen`",
            ..KEY
        },
        ConfigKey {
            name: "server.publicUrl",
            value_type: ValueType::Url,
            default_note: "the host of the request",
            example: "\"https://export.example.com\"",
            help: "the beginning of links and preview addresses, if a proxy is in front",
            ..KEY
        },
    ],
};

const TLS: Section = Section {
    name: "tls",
    keys: &[
        ConfigKey {
            name: "tls.certFile",
            value_type: ValueType::Path,
            example: "\"tls.crt\"",
            help: "the certificate, PEM; read again when it changes",
            ..KEY
        },
        ConfigKey {
            name: "tls.keyFile",
            value_type: ValueType::Path,
            example: "\"tls.key\"",
            help: "the certificate's private key, PEM",
            ..KEY
        },
        ConfigKey {
            name: "tls.listen",
            value_type: ValueType::Texts,
            example: "[\"0.0.0.0:8443\"]",
            help: "where the API is served encrypted; one address or a list",
            ..KEY
        },
    ],
};

const ADMIN: Section = Section {
    name: "admin",
    keys: &[ConfigKey {
        name: "admin.listen",
        value_type: ValueType::Texts,
        example: "[\"127.0.0.1:9191\"]",
        help: "where `/livez`, `/readyz` and `/metrics` are served",
        ..KEY
    }],
};

const STORE: Section = Section {
    name: "store",
    keys: &[
        ConfigKey {
            name: "store.path",
            value_type: ValueType::Path,
            example: "\"/var/lib/docwharf-origin\"",
            help: "keys, jobs, bundles, previews and searches; one origin at a time uses it; required",
            ..KEY
        },
        ConfigKey {
            name: "store.maxBytes",
            value_type: ANY_SIZE,
            default: "\"100GiB\"",
            help: "space of all bundles; another name of `limits.total.bundleBytes`",
            ..KEY
        },
        ConfigKey {
            name: "store.minFree",
            value_type: ANY_SIZE,
            default_note: "a twentieth of the disk, at most `1GiB`",
            example: "\"1GiB\"",
            help: "space that stays free on its disk",
            ..KEY
        },
    ],
};

const EXPORTS: Section = Section {
    name: "exports",
    keys: &[
        ConfigKey {
            name: "exports.workers",
            value_type: POSITIVE,
            default: "2",
            help: "exports that run at a time; another name of `limits.total.workers`",
            ..KEY
        },
        ConfigKey {
            name: "exports.keep",
            value_type: POSITIVE,
            default: "5",
            help: "bundles that are kept for each project, and failed jobs",
            ..KEY
        },
        ConfigKey {
            name: "exports.linkLifetime",
            value_type: ValueType::Duration { min: Duration::from_secs(1) },
            default: "\"15m\"",
            help: "how long a link to a bundle works; at most `7d`",
            ..KEY
        },
    ],
};

const PREVIEWS: Section = Section {
    name: "previews",
    keys: &[
        ConfigKey {
            name: "previews.host",
            value_type: ValueType::Text,
            default_note: "below `/preview/` of this server",
            example: "\"preview.example.com\"",
            help: "the domain below which previews are served",
            ..KEY
        },
        ConfigKey {
            name: "previews.workers",
            value_type: POSITIVE,
            default: "2",
            help: "previews that are built at a time; another name of `limits.total.previewBuilds`",
            ..KEY
        },
        ConfigKey {
            name: "previews.sweep",
            value_type: ValueType::Duration { min: Duration::from_secs(1) },
            default: "\"1m\"",
            help: "how often the origin checks which branches were removed",
            ..KEY
        },
        ConfigKey {
            name: "previews.search",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether readers can search previews; an index is built at the first search",
            ..KEY
        },
        ConfigKey {
            name: "previews.assistant",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether coding assistants can read previews by MCP, Markdown and `llms.txt`",
            ..KEY
        },
    ],
};

const ANALYTICS: Section = Section {
    name: "analytics",
    keys: &[ConfigKey {
        name: "analytics.keep",
        value_type: ANY_DURATION,
        default: "\"400d\"",
        help: "how long searches and daily counts are kept",
        ..KEY
    }],
};

const ORGANIZATION: TableList = TableList {
    name: "organization",
    keys: &[ConfigKey {
        name: "organization.id",
        value_type: ValueType::Text,
        example: "\"acme\"",
        help: "the name of the organization; required",
        ..KEY
    }],
    lists: &[PROJECT],
};

/// The keys from `branch` to `buildSize` are for projects with `git`, those after it for projects with `crawl`.
const PROJECT: TableList = TableList {
    name: "organization.project",
    keys: &[
        ConfigKey {
            name: "organization.project.id",
            value_type: ValueType::Text,
            example: "\"docs\"",
            help: "the name of the project, unique in the whole file; required",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.domain",
            value_type: ValueType::Text,
            example: "\"docs.acme.example\"",
            help: "the host name of its site; required",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.exports",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether the project may be exported",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.previews",
            value_type: ValueType::Flag,
            default_note: "`true` with `git`",
            example: "true",
            help: "whether its branches may be previewed",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.directory",
            value_type: ValueType::Path,
            example: "\"/srv/handbook\"",
            help: "a folder or an archive",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.git",
            value_type: ValueType::Location,
            example: "\"https://git.acme.example/docs.git\"",
            help: "a repository: URL, `host:path` or path",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.crawl",
            value_type: ValueType::Url,
            example: "\"http://127.0.0.1:3000/\"",
            help: "the start page of a running site",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.branch",
            value_type: ValueType::Text,
            default: "\"main\"",
            help: "the branch that exports are built from",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.build",
            value_type: ValueType::Text,
            default_note: "the checkout is the site",
            example: "\"mdbook build\"",
            help: "the command that builds the site",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.output",
            value_type: ValueType::Text,
            default_note: "the checkout",
            example: "\"book\"",
            help: "the folder of the checkout that is the site after the build",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.tools",
            value_type: ValueType::Texts,
            example: "[\"/opt/mdbook/bin\"]",
            help: "folders with further programs for builds",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.network",
            value_type: ValueType::Flag,
            default: "false",
            help: "whether builds may use the network",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.allowUntrusted",
            value_type: ValueType::Flag,
            default: "false",
            help: "whether builds may run as the user of the origin, without a sandbox",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.buildTime",
            value_type: ANY_DURATION,
            default: "\"15m\"",
            help: "the longest time of a build",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.buildSize",
            value_type: ANY_SIZE,
            default: "\"4GiB\"",
            help: "the space of a checkout with its build",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.parallel",
            value_type: ValueType::Number { min: 1, max: 1000 },
            default: "8",
            help: "requests at a time",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.robots",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether `robots.txt` is obeyed",
            ..KEY
        },
        ConfigKey {
            name: "organization.project.most",
            value_type: ValueType::Number { min: 0, max: 1_000_000_000 },
            default: "50000",
            help: "pages and assets beyond which a crawl fails",
            ..KEY
        },
    ],
    lists: &[],
};
