//! The keys of `[server]`, `[tls]`, `[access]` and `[admin]`: how the site is served, and to whom.

use std::time::Duration;

use crate::config::key_table::{ANY_SIZE, ConfigKey, KEY, Section, ValueType};

pub(super) const SERVER: Section = Section {
    name: "server",
    keys: &[
        ConfigKey {
            name: "server.listen",
            value_type: ValueType::Texts,
            default: "\"127.0.0.1:8080\"",
            help: "one address or a list; `[]` is allowed with a certificate",
            comment: "One address or a list; port 0 is any free one. [] is allowed if [tls] has a \
                      certificate.",
            ..KEY
        },
        ConfigKey {
            name: "server.basePath",
            value_type: ValueType::Text,
            default: "\"/\"",
            help: "path below which the site is served",
            comment: "The path below which the site is served.",
            ..KEY
        },
        ConfigKey {
            name: "server.slashes",
            value_type: ValueType::Word(&["auto", "serve", "redirect"]),
            default: "\"auto\"",
            help: "the response at an address of a page that is not its canonical one",
            comment: "The response at the several addresses of a page: \"serve\" serves the page at each, \
                      \"redirect\" redirects to the one at which relative links work, \"auto\" decides by \
                      the site.",
            ..KEY
        },
        ConfigKey {
            name: "server.identityCache",
            value_type: ANY_SIZE,
            default: "\"64MiB\"",
            help: "memory for inflated pages",
            comment: "Memory for pages that are inflated for clients without gzip.",
            ..KEY
        },
        ConfigKey {
            name: "server.heldBytes",
            value_type: ANY_SIZE,
            default: "\"64MiB\"",
            help: "memory besides `server.identityCache` for responses that clients have not read yet",
            comment: "Memory, besides identityCache, for responses that clients have not read yet: \
                      inflated pages and parts of them, in total. Beyond it, pages are inflated in \
                      smaller pieces, as clients read them.",
            ..KEY
        },
        ConfigKey {
            name: "server.codings",
            value_type: ValueType::Words(&["br", "zstd"]),
            default: "[\"br\", \"zstd\"]",
            help: "codings that `run` makes of the active version besides gzip; `[]`: none",
            comment: "Content codings that `run` makes of the active version, in the background: smaller \
                      than gzip, for clients that accept them. They take about as much space as the \
                      version. [] for none.",
            ..KEY
        },
        ConfigKey {
            name: "server.csp",
            value_type: ValueType::Word(&["off", "report", "connected", "airgap"]),
            default: "\"off\"",
            default_note: "`off`; `airgap` if `deployment.type` is `air-gapped`",
            help: "the content security policy",
            comment: "The content security policy of each page, computed from the pages. \"off\": none. \
                      \"report\": refuses nothing; the browser's console reports what \"connected\" \
                      would refuse. \"connected\": allows what the pages use. \"airgap\": allows no other \
                      origin. Off by default, because a site whose scripts create scripts may need a trial \
                      with \"report\" first; \"airgap\" if deployment.type is \"air-gapped\".",
            ..KEY
        },
        ConfigKey {
            name: "server.cspSize",
            value_type: ValueType::Size { min: 1 << 10, max: 64 << 10 },
            default: "\"3KiB\"",
            help: "the size above which a policy allows inline code instead of listing hashes",
            comment: "A page whose policy would be longer allows all inline scripts. Servers in front may \
                      refuse longer header fields: nginx accepts 4 KiB for all fields unless \
                      proxy_buffer_size is larger.",
            ..KEY
        },
        ConfigKey {
            name: "server.frames",
            value_type: ValueType::Word(&["same", "none", "any"]),
            default: "\"same\"",
            help: "which sites may show this site in a frame",
            comment: "Which sites may show this site in a frame: \"same\" (the site itself), \"none\" or \
                      \"any\".",
            ..KEY
        },
        ConfigKey {
            name: "server.referrerPolicy",
            value_type: ValueType::Word(&[
                "off",
                "no-referrer",
                "no-referrer-when-downgrade",
                "same-origin",
                "origin",
                "strict-origin",
                "origin-when-cross-origin",
                "strict-origin-when-cross-origin",
                "unsafe-url",
            ]),
            default: "\"strict-origin-when-cross-origin\"",
            help: "the Referrer-Policy: how much of a page's address other sites get",
            comment: "The Referrer-Policy: how much of the address of a page other sites get when a \
                      reader leaves it; \"off\" leaves that to the browser. If frames or \
                      referrerPolicy is not set, its default applies, but a bundle's _headers may \
                      change it (frames: only to forbid them altogether).",
            ..KEY
        },
        ConfigKey {
            name: "server.assetGrace",
            value_type: ValueType::Duration { min: Duration::ZERO },
            default: "\"72h\"",
            help: "how long hashed assets of a replaced version are still served; `0s`: not at all",
            comment: "How long assets with a hash in their name are still served after their version was \
                      replaced, for pages that are open in a browser. They are served only while the \
                      store keeps that version (sync.keep). \"0s\": not at all.",
            ..KEY
        },
        ConfigKey {
            name: "server.http2",
            value_type: ValueType::Word(&["own", "hyper", "off"]),
            default: "\"own\"",
            help: "implementation of HTTP/2: docwharf's own, that of the library hyper, or none (HTTP/1.1 only)",
            comment: "The implementation of HTTP/2: \"own\" (docwharf's), \"hyper\" (that of the \
                      library hyper, in case of a fault in docwharf's own; slower, and with its \
                      limits instead of those in SECURITY.md), or \"off\" (HTTP/1.1 only).",
            ..KEY
        },
        ConfigKey {
            name: "server.redirectsFile",
            value_type: ValueType::Path,
            example: "\"docs.json\"",
            help: "a `docs.json` or `_redirects` of your own",
            comment: "Redirects besides the site's own: a docs.json with `redirects`, or lines of `source \
                      destination [status]` as in a _redirects. docwharf watches the file. A mistake in \
                      it is a mistake in the configuration. No default.",
            ..KEY
        },
        ConfigKey {
            name: "server.trustedProxies",
            value_type: ValueType::Texts,
            example: "[\"10.0.0.0/8\", \"::1\"]",
            help: "addresses and ranges of proxies whose fields about clients are used",
            comment: "Addresses and ranges of trusted proxies. docwharf uses their Forwarded, \
                      X-Forwarded-For and X-Forwarded-Proto fields, which name the client and say whether \
                      it uses https. It ignores these fields from all other addresses. No default.",
            ..KEY
        },
    ],
};

pub(super) const TLS: Section = Section {
    name: "tls",
    keys: &[
        ConfigKey {
            name: "tls.certFile",
            value_type: ValueType::Path,
            example: "\"tls/fullchain.pem\"",
            help: "the certificate, PEM; else the systemd credential `tls-cert`",
            comment: "The site's certificate, followed by those that lead to its root, and its key, both \
                      PEM. docwharf reads them again when they change. If the new pair cannot be used, \
                      the previous pair stays in force. Without these keys: the systemd credentials \
                      tls-cert and tls-key.",
            ..KEY
        },
        ConfigKey {
            name: "tls.keyFile",
            value_type: ValueType::Path,
            example: "\"tls/privkey.pem\"",
            help: "the certificate's private key, PEM; else the systemd credential `tls-key`",
            ..KEY
        },
        ConfigKey {
            name: "tls.listen",
            value_type: ValueType::Texts,
            example: "[\"0.0.0.0:8443\", \"[::]:8443\"]",
            help: "where the site is served encrypted; one address or a list",
            comment: "Where the site is served encrypted (HTTP/2 and HTTP/1.1): one address or a list. No \
                      default.",
            ..KEY
        },
        ConfigKey {
            name: "tls.hsts",
            value_type: ValueType::Duration { min: Duration::ZERO },
            example: "\"365d\"",
            help: "Strict-Transport-Security, to clients that use https",
            comment: "How long browsers must use https (Strict-Transport-Security). The field is sent \
                      only to clients that use https, to docwharf or to a trusted proxy; \"0s\" ends an \
                      earlier value. No default.",
            ..KEY
        },
    ],
};

pub(super) const ACCESS: Section = Section {
    name: "access",
    keys: &[
        ConfigKey {
            name: "access.allow",
            value_type: ValueType::Texts,
            example: "[\"10.0.0.0/8\", \"192.168.0.0/16\", \"fd00::/8\"]",
            help: "addresses and ranges that may read",
            comment: "The clients that may read: addresses and ranges. Other clients get a 403. This key, \
                      header and server.trustedProxies change without a restart. No default.",
            ..KEY
        },
        ConfigKey {
            name: "access.header",
            value_type: ValueType::Text,
            example: "\"X-Forwarded-User\"",
            help: "the header field in which a trusted proxy names the user who has signed in",
            comment: "The header field in which a proxy names the user who has signed in. It is used \
                      only from server.trustedProxies. The proxy must remove it from the requests of \
                      clients. If access.allow is set, too, both conditions must hold. No default.",
            ..KEY
        },
        ConfigKey {
            name: "access.log",
            value_type: ValueType::Word(&["off", "json", "combined"]),
            default: "\"off\"",
            help: "the access log",
            comment: "The access log: \"off\", \"json\" or \"combined\" (the format of Apache and nginx, \
                      then seconds and version). Queries are left out, because they may contain search \
                      terms.",
            ..KEY
        },
        ConfigKey {
            name: "access.logFile",
            value_type: ValueType::Path,
            example: "\"/var/log/docwharf/access.log\"",
            help: "the file of the access log, instead of stdout",
            comment: "The file of the access log; SIGHUP opens it again. Default: the standard \
                      output, after the lines with the URLs that docwharf prints at its start.",
            ..KEY
        },
        ConfigKey {
            name: "access.logAddress",
            value_type: ValueType::Word(&["truncated", "full", "none"]),
            default: "\"truncated\"",
            help: "the clients' addresses in the access log",
            comment: "\"truncated\" (to /24 and /48), \"full\" or \"none\".",
            ..KEY
        },
    ],
};

pub(super) const ADMIN: Section = Section {
    name: "admin",
    keys: &[
        ConfigKey {
            name: "admin.listen",
            value_type: ValueType::Texts,
            example: "\"127.0.0.1:8081\"",
            help: "health, status and metrics, besides the control socket; one address or a list",
            comment: "Where /livez, /readyz, /status and /metrics answer, besides the store's control \
                      socket. They contain more than readers need to know, for every client that can \
                      connect: keep this listener internal. One address or a list. No default.",
            ..KEY
        },
        ConfigKey {
            name: "admin.hosts",
            value_type: ValueType::Texts,
            example: "[\"docs-admin.example.com\"]",
            help: "host names of `admin.listen` besides IP addresses, `localhost` and the machine's name",
            comment: "A request must be addressed to an IP address, to localhost, to the machine's name, \
                      or to one of these names. Other requests get 421, except those for /livez, /readyz \
                      and /metrics. A page whose own name resolves here (DNS rebinding) therefore cannot \
                      read the status.",
            ..KEY
        },
    ],
};
