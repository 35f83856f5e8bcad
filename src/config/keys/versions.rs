//! The keys of `[store]`, `[gate]`, `[activate]`, `[publish]` and `[limits]`: what happens to the versions.

use std::time::Duration;

use crate::config::key_table::{ANY_SIZE, ConfigKey, KEY, Section, ValueType};

pub(super) const STORE: Section = Section {
    name: "store",
    keys: &[
        ConfigKey {
            name: "store.path",
            value_type: ValueType::Path,
            default: "\"/var/lib/docwharf\"",
            default_note: "`$STATE_DIRECTORY`, else `/var/lib/docwharf`",
            help: "versions; only its user and group can read them, and with `UMask=0077`, as in the units, its user and root alone",
            comment: "Default: $STATE_DIRECTORY, else this.",
            ..KEY
        },
        ConfigKey {
            name: "store.maxBytes",
            value_type: ANY_SIZE,
            example: "\"20GiB\"",
            help: "space that all versions may take",
            comment: "The space that all versions together may take. Unprotected versions are removed, \
                      the oldest first, even if keep would keep them. Active, previous, newest and \
                      labelled versions are protected. If a bundle cannot fit, the sync fails (exit code \
                      8), before the download if the size is known. No default.",
            ..KEY
        },
        ConfigKey {
            name: "store.minFree",
            value_type: ANY_SIZE,
            example: "\"1GiB\"",
            help: "space that must stay free on the store's file system",
            comment: "The space that must stay free on the store's file system. Unprotected versions are \
                      removed, the oldest first, if that makes enough space. Otherwise the sync fails, \
                      and the site stays as it is. No default.",
            ..KEY
        },
        ConfigKey {
            name: "store.scrub",
            value_type: ValueType::DurationOrZero { min: Duration::from_mins(10) },
            default: "\"7d\"",
            help: "interval at which `run` verifies each version, slowly; at once after a crash; `0s`: \
                   never",
            comment: "After this time, every byte of a version is read and verified again, slowly and \
                      in the background. If the previous docwharf process did not end cleanly, all versions \
                      are verified at once, one after another. If the disk has damaged a version, the \
                      version before it replaces it, status and metrics report it, and docwharf fetches \
                      it again from its source. At least \"10m\"; \"0s\" for never.",
            ..KEY
        },
    ],
};

pub(super) const GATE: Section = Section {
    name: "gate",
    keys: &[
        ConfigKey {
            name: "gate.require",
            value_type: ValueType::Texts,
            example: "[\"/\", \"/sitemap.xml\"]",
            help: "addresses that must be found",
            comment: "The conditions for a version to become active automatically; none by default. A refused \
                      version stays in the store, the active version stays active, and `docwharf stage` \
                      shows both. The conditions do not apply to `activate` and `rollback`. Addresses \
                      that must be found, as a reader requests them: below basePath, also through a \
                      redirect within the site.",
            ..KEY
        },
        ConfigKey {
            name: "gate.minPages",
            value_type: ValueType::Number { min: 0, max: 1_000_000_000 },
            example: "10",
            help: "the smallest number of pages",
            comment: "The smallest number of pages.",
            ..KEY
        },
        ConfigKey {
            name: "gate.maxShrink",
            value_type: ValueType::Percent,
            example: "\"30%\"",
            help: "the largest part of the pages that may be missing",
            comment: "The largest part of the active version's number of pages that may be missing, in \
                      whole percent.",
            ..KEY
        },
        ConfigKey {
            name: "gate.maxBrokenLinks",
            value_type: ValueType::Number { min: 0, max: 1_000_000_000 },
            example: "0",
            help: "the largest number of additional broken links",
            comment: "The largest number of broken links and assets that the version may have more than \
                      the active one. For each page, the distinct addresses of this site that it refers \
                      to and that are a 404 count. Without an active version, all broken links count.",
            ..KEY
        },
    ],
};

pub(super) const ACTIVATE: Section = Section {
    name: "activate",
    keys: &[
        ConfigKey {
            name: "activate.mode",
            value_type: ValueType::Word(&["auto", "manual"]),
            default: "\"auto\"",
            help: "`manual`: a person activates each version",
            comment: "\"manual\": no version becomes active automatically, not even the first one. `docwharf \
                      stage` shows the one that waits, and `docwharf activate` activates it. A pin names \
                      the one that waits.",
            ..KEY
        },
        ConfigKey {
            name: "activate.listen",
            value_type: ValueType::Texts,
            example: "\"127.0.0.1:8082\"",
            help: "where the version that waits is shown; one address or a list",
            comment: "Where the version that waits to become active is shown, as readers will see it. Its \
                      scripts are not approved yet, so it is never served beside the site or the admin \
                      routes. Every client that can connect can read it. One address or a list. No \
                      default.",
            ..KEY
        },
    ],
};

pub(super) const PUBLISH: Section = Section {
    name: "publish",
    keys: &[
        ConfigKey {
            name: "publish.directory",
            value_type: ValueType::Path,
            example: "\"/srv/docs\"",
            help: "the active version as plain files for another server, below its link `current`",
            comment: "The active version as plain files for another server, such as an nginx in the same \
                      pod: in this folder, `current` is a link to it. The other server needs only read \
                      access. No default.",
            ..KEY
        },
        ConfigKey {
            name: "publish.mode",
            value_type: ValueType::Mode,
            default: "\"0644\"",
            help: "the mode of those files",
            comment: "The mode of the files, whatever the umask of the process. Users that may read the \
                      files may also enter the folders.",
            ..KEY
        },
        ConfigKey {
            name: "publish.umask",
            value_type: ValueType::Mode,
            example: "\"0022\"",
            help: "instead of the mode: what is removed from 0666 and 0777",
            comment: "Instead of the mode: what is removed from 0666 for files and from 0777 for folders. \
                      No default.",
            ..KEY
        },
    ],
};

pub(super) const LIMITS: Section = Section {
    name: "limits",
    keys: &[
        ConfigKey {
            name: "limits.entries",
            value_type: ValueType::Number { min: 1, max: 10_000_000 },
            default: "200000",
            help: "entries of the archive",
            comment: "The limits of a bundle: entries of the archive, content of all files together, the \
                      archive itself, content of one file. A bundle that exceeds one is rejected.",
            ..KEY
        },
        ConfigKey {
            name: "limits.unpacked",
            value_type: ANY_SIZE,
            default: "\"8GiB\"",
            help: "content of all files together",
            ..KEY
        },
        ConfigKey {
            name: "limits.archive",
            value_type: ANY_SIZE,
            default: "\"4GiB\"",
            help: "the archive itself",
            ..KEY
        },
        ConfigKey {
            name: "limits.entry",
            value_type: ANY_SIZE,
            default: "\"2GiB\"",
            help: "content of one file",
            ..KEY
        },
    ],
};
