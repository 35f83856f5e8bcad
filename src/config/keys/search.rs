//! The keys of `[search]`: the full-text search of the served site.

use crate::config::key_table::{ConfigKey, KEY, Section, ValueType};

pub(super) const SEARCH: Section = Section {
    name: "search",
    keys: &[
        ConfigKey {
            name: "search.enabled",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether readers can search the site",
            comment: "Readers can search the site in a box that docwharf adds to its pages, at \
                      /_docwharf/search, and through JSON. `run` builds the index of the active version in \
                      the background. false: no index, no box, and these addresses are not found. All keys \
                      of [search] change without a restart.",
            ..KEY
        },
        ConfigKey {
            name: "search.inject",
            value_type: ValueType::Word(&["auto", "always", "never"]),
            default: "\"auto\"",
            help: "whether pages get the script of the search box; `auto`: unless the site brings its own index",
            comment: "Whether docwharf adds the script of the search box to the end of each HTML page. \
                      \"auto\": unless the site brings a search index of its own, as those of mdBook, \
                      Sphinx and MkDocs do; `docwharf status` shows the decision.",
            ..KEY
        },
        ConfigKey {
            name: "search.selectors",
            value_type: ValueType::Texts,
            default: "[\"#search-bar-entry\", \"#search-bar-entry-mobile\", \".DocSearch-Button\", \
                      \"[data-docwharf-search]\"]",
            help: "CSS selectors of the site's own elements that open the box",
            comment: "CSS selectors of elements of the site that open the box, instead of what they do \
                      otherwise.",
            ..KEY
        },
        ConfigKey {
            name: "search.button",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether a page without such an element gets a button",
            comment: "Whether a page without such an element gets a button that opens the box.",
            ..KEY
        },
        ConfigKey {
            name: "search.exclude",
            value_type: ValueType::Texts,
            default: "[]",
            help: "addresses of pages that the index leaves out; patterns as in `[[server.redirects]]`",
            comment: "Addresses of pages that the index leaves out, below basePath: patterns as in \
                      [[server.redirects]], such as \"/internal/:path*\".",
            ..KEY
        },
        ConfigKey {
            name: "search.synonyms",
            value_type: ValueType::Path,
            example: "\"synonyms.toml\"",
            help: "a TOML file with words that mean the same, beside the built-in English ones",
            comment: "A TOML file with words that mean the same: sets = [[\"kill\", \"terminate\"]]. A search \
                      for one of them finds the others, too. docwharf watches the file. A mistake in it is a \
                      mistake in the configuration. No default.",
            ..KEY
        },
        ConfigKey {
            name: "search.parallel",
            value_type: ValueType::Number { min: 1, max: 256 },
            default_note: "the number of cores",
            example: "2",
            help: "searches that run at a time; others wait, at most 500 ms",
            comment: "Searches that run at a time. Others wait, at most 500 ms; then they get a 503. \
                      Default: the number of processors.",
            ..KEY
        },
    ],
};
