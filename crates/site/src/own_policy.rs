//! Whether the content security policies that a site brings itself, or that the operator's header fields set, allow a
//! script of the site to run and to send requests to the site (Content Security Policy Level 3).
//!
//! The policies are in header fields ([`crate::rules`]) and in `meta` elements of pages. A sample of the pages is read:
//! a site that has a policy has it on all pages or on a part of them that the sample is likely to meet.

use http::header::CONTENT_SECURITY_POLICY;
use http::{HeaderMap, StatusCode};
use lol_html::{HtmlRewriter, MemorySettings, Settings, element};

use docwharf_base::model::site_path::is_page;

use crate::external::character_references::resolve_references;
use crate::lookup::SiteFiles;
use crate::rules::RuleSet;
use crate::rules::operator_restrictions::OperatorRestrictions;
use crate::sealed_version::SealedVersion;

/// The maximum number of pages that are read.
const MAX_PAGES: usize = 20;
/// The maximum size of a page that is read, in bytes.
const MAX_PAGE_BYTES: u64 = 4 << 20;
/// The number of bytes at the beginning of a page in which a policy is looked for. It must be in the `head`.
const MAX_HEAD_BYTES: usize = 256 << 10;
/// The memory limit of the HTML parser for one page, in bytes.
const MAX_PARSER_MEMORY_BYTES: usize = 4 << 20;
/// The maximum length of a policy that a description quotes, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// The schemes of addresses that no server answers.
const LOCAL_SCHEMES: [&str; 4] = ["data:", "blob:", "filesystem:", "mediastream:"];

/// Returns a description of the first policy that forbids scripts of the site, or their requests to the site; `None` if
/// no page of the sample has one. `operator` are the rules of the configuration.
pub fn find_script_barrier(version: &SealedVersion, operator: &RuleSet) -> Option<String> {
    let pages: Vec<usize> = (0..version.index().len()).filter(|&file| is_page(version.index().path(file))).collect();
    // The start page, if there is one, and further pages at equal distances in the list.
    let start = version.index().find(b"index.html");
    let step = pages.len().div_ceil(MAX_PAGES - 1).max(1);
    let sample = start.into_iter().chain(pages.iter().copied().step_by(step));
    sample.take(MAX_PAGES).find_map(|file| find_barrier_of_page(version, operator, file))
}

fn find_barrier_of_page(version: &SealedVersion, operator: &RuleSet, file: usize) -> Option<String> {
    let path = String::from_utf8_lossy(version.index().path(file)).into_owned();
    for address in addresses_of(&path) {
        let policies = read_header_policies(version.rules(), operator, &address);
        if let Some(barrier) = policies.iter().find_map(|policy| find_barrier(policy)) {
            return Some(format!("the policy in the header fields of {address} has {barrier}"));
        }
    }
    let barrier = read_meta_policies(version, file).iter().find_map(|policy| find_barrier(policy))?;
    Some(format!("the policy in the page /{path} has {barrier}"))
}

/// Returns the addresses at which readers request a page, which header rules may name: without its extension, or that
/// of its folder; and its own.
fn addresses_of(path: &str) -> Vec<String> {
    let short = match path.strip_suffix("index.html") {
        Some(folder) if folder.is_empty() || folder.ends_with('/') => Some(folder),
        _ => path.strip_suffix(".html"),
    };
    short.into_iter().chain([path]).map(|path| format!("/{path}")).collect()
}

/// Returns the policies in the header fields of a response. A field of the operator replaces that of the bundle.
fn read_header_policies(bundle: &RuleSet, operator: &RuleSet, address: &str) -> Vec<String> {
    let mut headers = HeaderMap::new();
    bundle.fields.apply(address.as_bytes(), Some(OperatorRestrictions::default()), StatusCode::OK, &mut headers);
    operator.fields.apply(address.as_bytes(), None, StatusCode::OK, &mut headers);
    let values = headers.get_all(CONTENT_SECURITY_POLICY).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|list| list.split(',')).map(str::to_owned).collect()
}

/// Returns the policies in the `meta` elements of a page.
fn read_meta_policies(version: &SealedVersion, file: usize) -> Vec<String> {
    let entry = version.entry(file);
    if entry.len > MAX_PAGE_BYTES {
        return Vec::new();
    }
    let Ok(content) = version.content(&entry) else { return Vec::new() };
    let mut policies = Vec::new();
    let handler = element!("meta[http-equiv][content]", |element| {
        let name = element.get_attribute("http-equiv").unwrap_or_default();
        if name.trim().eq_ignore_ascii_case("content-security-policy") {
            let policy = element.get_attribute("content").unwrap_or_default();
            policies.push(resolve_references(&policy).0.into_owned());
        }
        Ok(())
    });
    let settings = Settings::new()
        .append_element_content_handler(handler)
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_PARSER_MEMORY_BYTES))
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    // The parser fails beyond its memory; the policies that it has read before count.
    let _ = rewriter.write(&content[..content.len().min(MAX_HEAD_BYTES)]);
    drop(rewriter);
    policies
}

/// Returns the directive by which a policy forbids scripts of the site, or their requests to it.
fn find_barrier(policy: &str) -> Option<String> {
    let directives: Vec<(String, Vec<&str>)> = policy.split(';').filter_map(parse_directive).collect();
    // The first directive of a name counts.
    let find =
        |names: &[&str]| names.iter().find_map(|name| directives.iter().find(|(directive, _)| directive == name));
    let sandbox = find(&["sandbox"]).filter(|(_, flags)| !contains(flags, "allow-scripts"));
    let script = find(&["script-src-elem", "script-src", "default-src"]).filter(|(_, sources)| {
        // With this word only scripts with a nonce or a hash may load others.
        contains(sources, "'strict-dynamic'") || !allows_own_origin(sources)
    });
    let request = find(&["connect-src", "default-src"]).filter(|(_, sources)| !allows_own_origin(sources));
    let (name, values) = sandbox.or(script).or(request)?;
    let directive: String = [&[name.as_str()], &values[..]].concat().join(" ");
    let quoted: String = directive.chars().take(MAX_QUOTED_CHARS).collect();
    Some(if quoted.len() < directive.len() { format!("`{quoted}…`") } else { format!("`{quoted}`") })
}

fn parse_directive(text: &str) -> Option<(String, Vec<&str>)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.to_ascii_lowercase(), words.collect()))
}

fn contains(words: &[&str], expected: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(expected))
}

/// Whether a list of sources allows the origin of the site. A host or a scheme of a server may be that of the site,
/// which is not known here, so it counts as allowed.
fn allows_own_origin(sources: &[&str]) -> bool {
    let is_local = |source: &str| LOCAL_SCHEMES.iter().any(|scheme| source.eq_ignore_ascii_case(scheme));
    let is_own = |source: &str| source.eq_ignore_ascii_case("'self'") || !source.starts_with('\'') && !is_local(source);
    sources.iter().any(|source| is_own(source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RuleDraft, netlify_files};

    // Regression: after the operator had replaced a policy of the bundle, doctor still reported it.
    #[test]
    fn a_policy_of_the_operator_replaces_that_of_the_bundle() {
        let rules = |text: &str| {
            let mut draft = RuleDraft::default();
            netlify_files::read_headers(text, "rules", &mut draft);
            RuleSet::new(draft)
        };
        let bundle = rules("/*\n  Content-Security-Policy: script-src 'none'\n");
        let barrier = |operator: &RuleSet, address: &str| {
            read_header_policies(&bundle, operator, address).iter().find_map(|policy| find_barrier(policy))
        };
        assert_eq!(barrier(&RuleSet::default(), "/guide").as_deref(), Some("`script-src 'none'`"));
        let operator = rules("/*\n  Content-Security-Policy: script-src 'self'\n");
        assert_eq!(barrier(&operator, "/guide"), None);
        let elsewhere = rules("/other\n  Content-Security-Policy: script-src 'self'\n");
        assert!(barrier(&elsewhere, "/guide").is_some());
    }

    #[test]
    fn policies_are_looked_for_at_the_addresses_that_readers_request() {
        for (path, expected) in [
            ("index.html", &["/", "/index.html"][..]),
            ("guide/index.html", &["/guide/", "/guide/index.html"]),
            ("guide.html", &["/guide", "/guide.html"]),
            ("my-index.html", &["/my-index", "/my-index.html"]),
            ("page.htm", &["/page.htm"]),
        ] {
            assert_eq!(addresses_of(path), expected, "{path}");
        }
    }

    #[test]
    fn a_policy_forbids_scripts_of_the_site_unless_a_source_may_be_the_site() {
        for (policy, expected) in [
            ("", None),
            ("img-src 'none'; upgrade-insecure-requests", None),
            ("script-src 'self'", None),
            ("default-src 'self' data:", None),
            ("default-src *", None),
            ("script-src https:", None),
            ("script-src docs.example.com", None),
            ("default-src 'none'; script-src 'SELF'; connect-src 'self'", None),
            ("script-src 'none'; script-src-elem 'self'", None),
            ("sandbox allow-scripts allow-forms", None),
            ("default-src 'none'", Some("`default-src 'none'`")),
            ("Script-Src 'none'", Some("`script-src 'none'`")),
            ("script-src", Some("`script-src`")),
            ("script-src blob: DATA:", Some("`script-src blob: DATA:`")),
            ("script-src 'sha256-x' 'unsafe-inline'", Some("`script-src 'sha256-x' 'unsafe-inline'`")),
            ("script-src 'self' 'strict-dynamic' 'nonce-x'", Some("`script-src 'self' 'strict-dynamic' 'nonce-x'`")),
            ("script-src 'self'; connect-src 'none'", Some("`connect-src 'none'`")),
            ("default-src 'none'; script-src 'self'", Some("`default-src 'none'`")),
            ("sandbox", Some("`sandbox`")),
            // The first directive of a name counts.
            ("script-src 'self'; script-src 'none'", None),
        ] {
            assert_eq!(find_barrier(policy).as_deref(), expected, "{policy}");
        }
        let long = find_barrier(&format!("script-src {}", "'sha256-x' ".repeat(50))).unwrap();
        assert!(long.ends_with("…`") && long.chars().count() == MAX_QUOTED_CHARS + 3, "{long}");
    }
}
