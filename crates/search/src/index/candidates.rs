//! The files of a site that can be pages of the index, and the addresses at which they are served.

use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::{AddressSettings, SiteFiles};
use docwharf_site::rules::pattern::Pattern;
use docwharf_site::rules::robots_tag::forbids_indexing;
use docwharf_site::rules::route::{RouteResult, RouteSettings, route_address};
use docwharf_site::sealed_version::SealedVersion;

use super::build_report::LeftOutPages;

/// A file that can be a page of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CandidatePage {
    /// The number of the file in the version.
    pub(crate) file: usize,
    /// The path of the file.
    pub(crate) path: String,
    /// The addresses that lead to the file without a redirect, without a leading slash, the usual one first.
    pub(crate) addresses: Vec<String>,
}

/// The reason why a file is not a page that readers find.
enum NotListed {
    /// It is not an HTML file.
    NoPage,
    /// Its path is not UTF-8.
    UnreadablePath,
    /// It is shown for addresses that do not exist.
    NotFoundPage,
    /// A pattern excludes it.
    Excluded,
    /// No address leads to it without a redirect.
    NotServed,
}

/// Returns the usual address of a page of a version, below the base path and without a leading slash; `None` if
/// readers do not find the file: it is not an HTML file, a pattern of `exclude` matches one of its addresses, it is
/// shown for addresses that do not exist, or no address leads to it without a redirect. The page itself is not read.
pub fn find_listed_address(
    version: &SealedVersion,
    settings: &AddressSettings,
    exclude: &[Pattern],
    file: usize,
) -> Option<String> {
    let candidate = check_candidate(version, &route_settings(version, settings), exclude, file).ok()?;
    candidate.addresses.into_iter().next()
}

/// Returns whether a page is withheld from assistants because of its addresses: a pattern of `exclude` matches one of
/// them, or a header rule of the site or of its operator sets `X-Robots-Tag` with `noindex` there. `requested` is the
/// address at which the page was requested, with its leading slash: a rule may lead to the page from an address that is
/// none of its own. The page itself is not read.
pub fn is_withheld(
    version: &SealedVersion,
    settings: &AddressSettings,
    exclude: &[Pattern],
    file: usize,
    requested: Option<&[u8]>,
) -> bool {
    let (bundle, operator) = (&version.rules().fields, &settings.rules.fields);
    if exclude.is_empty() && bundle.is_empty() && operator.is_empty() {
        return false;
    }
    let path = version.index().path(file);
    let forms = match std::str::from_utf8(path) {
        Ok(path) => address_forms(path, version.is_next).into_iter().map(String::into_bytes).collect(),
        Err(_) => vec![path.to_vec()],
    };
    let own = forms.into_iter().map(|form| [b"/", &form[..]].concat());
    own.chain(requested.map(<[u8]>::to_vec)).any(|address| {
        exclude.iter().any(|pattern| pattern.matches(&address).is_some())
            || forbids_indexing(bundle, operator, &address)
    })
}

fn route_settings<'a>(version: &SealedVersion, settings: &'a AddressSettings) -> RouteSettings<'a> {
    RouteSettings {
        base_path: &settings.base_path,
        slashes: settings.slashes.unwrap_or(version.auto_slashes),
        rules: &settings.rules,
    }
}

/// Returns the HTML files of a version that are served, in byte order of their paths, and counts the others.
pub(crate) fn find_candidates(
    version: &SealedVersion,
    settings: &AddressSettings,
    exclude: &[Pattern],
    left_out: &mut LeftOutPages,
) -> Vec<CandidatePage> {
    let routes = route_settings(version, settings);
    let mut candidates = Vec::new();
    for file in 0..version.index().len() {
        match check_candidate(version, &routes, exclude, file) {
            Ok(candidate) => candidates.push(candidate),
            Err(NotListed::NoPage) => {}
            Err(NotListed::UnreadablePath) => left_out.unreadable += 1,
            Err(NotListed::NotFoundPage) => left_out.not_found_page += 1,
            Err(NotListed::Excluded) => left_out.excluded += 1,
            Err(NotListed::NotServed) => left_out.not_served += 1,
        }
    }
    candidates
}

fn check_candidate(
    version: &SealedVersion,
    routes: &RouteSettings<'_>,
    exclude: &[Pattern],
    file: usize,
) -> Result<CandidatePage, NotListed> {
    let path = version.index().path(file);
    if !is_page(path) {
        return Err(NotListed::NoPage);
    }
    let path = std::str::from_utf8(path).map_err(|_| NotListed::UnreadablePath)?;
    if Some(file) == version.not_found || is_not_found_page(path) {
        return Err(NotListed::NotFoundPage);
    }
    let forms = address_forms(path, version.is_next);
    if forms.iter().any(|form| is_excluded(exclude, form)) {
        return Err(NotListed::Excluded);
    }
    let addresses: Vec<String> = forms.into_iter().filter(|form| is_served_at(version, routes, file, form)).collect();
    if addresses.is_empty() {
        return Err(NotListed::NotServed);
    }
    Ok(CandidatePage { file, path: path.to_owned(), addresses })
}

/// Whether a page is shown for addresses that do not exist: the page of the site or of one of its languages, or the one
/// that Next.js writes. `status/404.html` is a page about that number.
fn is_not_found_page(path: &str) -> bool {
    let is_language = |folder: &str| {
        let mut subtags = folder.split(['-', '_']);
        let primary = subtags.next().unwrap_or_default();
        primary.len() == 2 && subtags.chain([primary]).all(|subtag| subtag.bytes().all(|b| b.is_ascii_alphabetic()))
    };
    let page = match path.split_once('/') {
        Some((folder, page)) if is_language(folder) => page,
        _ => path,
    };
    matches!(page, "404.html" | "404/index.html" | "_not-found.html" | "_not-found/index.html")
}

/// Returns the addresses of a page that do not depend on other files, the usual one first: a folder stands for its
/// `index.html`, and the pages of a Next.js site have no suffix.
fn address_forms(path: &str, is_next: bool) -> Vec<String> {
    let owned = |forms: &[&str]| forms.iter().map(|&form| form.to_owned()).collect();
    if path == "index.html" {
        return owned(&["", path]);
    }
    if let Some(folder) = path.strip_suffix("/index.html") {
        return owned(&[&format!("{folder}/"), folder, path]);
    }
    match path.strip_suffix(".html") {
        Some(short) if is_next => owned(&[short, path]),
        Some(short) => owned(&[path, short]),
        None => owned(&[path]),
    }
}

fn is_excluded(exclude: &[Pattern], form: &str) -> bool {
    let address = format!("/{form}");
    exclude.iter().any(|pattern| pattern.matches(address.as_bytes()).is_some())
}

/// Whether an address leads to a file without a redirect, by the rules in force.
fn is_served_at(version: &SealedVersion, routes: &RouteSettings<'_>, file: usize, form: &str) -> bool {
    // The server refuses addresses with control characters.
    if form.contains(char::is_control) {
        return false;
    }
    let address = format!("/{form}");
    match route_address(version, routes, address.as_bytes(), None) {
        RouteResult::File(found) | RouteResult::Rewritten(found, 200) => found == file,
        _ => false,
    }
}

impl CandidatePage {
    /// Returns the address of the page: `preferred` if it leads to the page, otherwise the usual one.
    pub(crate) fn choose_address(&self, preferred: Option<&str>) -> &str {
        let known = preferred.and_then(|preferred| self.addresses.iter().find(|address| *address == preferred));
        known.or(self.addresses.first()).map_or(&self.path, |address| address)
    }
}

#[cfg(test)]
mod tests {
    use docwharf_site::rules::RuleSet;
    use docwharf_site::rules::header_fields::RuleOwner;
    use docwharf_site::rules::pattern::PatternDialect;

    use super::super::test_sites::seal_site;
    use super::*;

    fn find(files: &[(&str, &str)], exclude: &[&str]) -> (Vec<String>, LeftOutPages) {
        let patterns: Vec<Pattern> =
            exclude.iter().map(|source| Pattern::parse(source, PatternDialect::DocsJson).unwrap()).collect();
        let mut left_out = LeftOutPages::default();
        let candidates = find_candidates(&seal_site(files), &AddressSettings::default(), &patterns, &mut left_out);
        (candidates.iter().map(|page| format!("/{}", page.choose_address(None))).collect(), left_out)
    }

    #[test]
    fn only_a_page_that_readers_find_has_a_listed_address() {
        let version = seal_site(&[
            ("404.html", "<p>not found"),
            ("a.css", "a{}"),
            ("guide/index.html", "<p>guide"),
            ("internal/x.html", "<p>x"),
        ]);
        let exclude = [Pattern::parse("/internal/:rest*", PatternDialect::DocsJson).unwrap()];
        let listed = |path: &str| {
            let file = version.index().find(path.as_bytes()).unwrap();
            find_listed_address(&version, &AddressSettings::default(), &exclude, file)
        };
        assert_eq!(listed("guide/index.html").as_deref(), Some("guide/"));
        for hidden in ["404.html", "a.css", "internal/x.html"] {
            assert_eq!(listed(hidden), None, "{hidden}");
        }
    }

    #[test]
    fn a_page_is_withheld_by_any_of_its_addresses() {
        let version = seal_site(&[
            ("_headers", "/guide/*\n X-Robots-Tag: noindex\n/open\n X-Robots-Tag: otherbot: noindex\n"),
            ("guide/a.html", "x"),
            ("internal/index.html", "x"),
            ("open.html", "x"),
        ]);
        let mut draft = docwharf_site::rules::RuleDraft::default();
        let rule = draft.fields.add_rule(Pattern::parse("/open.html", PatternDialect::Netlify).unwrap()).unwrap();
        draft.fields.add_field(rule, "X-Robots-Tag", "none", RuleOwner::Operator).unwrap();
        let closed = AddressSettings { rules: std::sync::Arc::new(RuleSet::new(draft)), ..AddressSettings::default() };
        let exclude = [Pattern::parse("/internal", PatternDialect::DocsJson).unwrap()];
        for (path, settings, exclude, requested, expected) in [
            ("guide/a.html", &AddressSettings::default(), &[][..], None, true),
            ("internal/index.html", &AddressSettings::default(), &[], None, false),
            ("internal/index.html", &AddressSettings::default(), &exclude, None, true),
            ("open.html", &AddressSettings::default(), &exclude, None, false),
            ("open.html", &AddressSettings::default(), &exclude, Some("/guide/x"), true),
            ("open.html", &AddressSettings::default(), &exclude, Some("/internal/"), true),
            ("open.html", &AddressSettings::default(), &exclude, Some("/x"), false),
            ("open.html", &closed, &[], None, true),
        ] {
            let file = version.index().find(path.as_bytes()).unwrap();
            let is_withheld = is_withheld(&version, settings, exclude, file, requested.map(str::as_bytes));
            assert_eq!(is_withheld, expected, "{path} {requested:?}");
        }
    }

    #[test]
    fn pages_have_the_address_that_the_site_itself_uses() {
        let files = ["a.html", "b/index.html", "c.htm", "index.html", "style.css", "a b.html"].map(|path| (path, "x"));
        assert_eq!(find(&files, &[]).0, ["/a b.html", "/a.html", "/b/", "/c.htm", "/"]);
        let next = [&files[..], &[("_next/static/a.js", "x")]].concat();
        assert_eq!(find(&next, &[]).0, ["/a b", "/a", "/b/", "/c.htm", "/"]);
    }

    #[test]
    fn the_form_of_a_canonical_link_or_sitemap_is_used_if_it_leads_to_the_page() {
        let page = |path: &str, addresses: &[&str]| CandidatePage {
            file: 0,
            path: path.to_owned(),
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        };
        let candidate = page("a.html", &["a.html", "a"]);
        for (preferred, expected) in [(None, "a.html"), (Some("a"), "a"), (Some("b"), "a.html")] {
            assert_eq!(candidate.choose_address(preferred), expected);
        }
    }

    #[test]
    fn hidden_redirected_and_excluded_pages_and_pages_for_errors_are_left_out() {
        let files = [
            ("404.html", "x"),
            (".hidden/a.html", "x"),
            ("_docwharf/a.html", "x"),
            (
                "_redirects",
                "/gone.html /new.html 301!\n/gone /new.html 301!\n/half.html /half 301!\n/soft.html /new.html 301\n",
            ),
            ("gone.html", "x"),
            ("half.html", "x"),
            ("internal/a.html", "x"),
            ("internal/index.html", "x"),
            ("new.html", "x"),
            ("soft.html", "x"),
        ];
        let (pages, left_out) = find(&files, &["/internal/:path*"]);
        assert_eq!(pages, ["/half", "/new.html", "/soft.html"]);
        let expected = LeftOutPages { not_found_page: 1, not_served: 3, excluded: 2, ..LeftOutPages::default() };
        assert_eq!(left_out, expected);
    }

    #[test]
    fn pages_for_addresses_that_do_not_exist_are_those_of_the_site_and_its_languages() {
        for (path, expected) in [
            ("404.html", true),
            ("404/index.html", true),
            ("_not-found.html", true),
            ("de/404.html", true),
            ("pt-BR/404/index.html", true),
            ("zh_Hant/404.html", true),
            ("api/404.html", false),
            ("v1/404.html", false),
            ("status/404/index.html", false),
            ("404.htm/index.html", false),
            ("index.html", false),
        ] {
            assert_eq!(is_not_found_page(path), expected, "{path}");
        }
    }

    #[test]
    fn rules_of_the_operator_count_like_those_of_the_site() {
        let mut draft = docwharf_site::rules::RuleDraft::default();
        docwharf_site::rules::netlify_files::read_redirects("/a* /b.html 302!\n", "rules", &mut draft);
        let settings =
            AddressSettings { rules: std::sync::Arc::new(RuleSet::new(draft)), ..AddressSettings::default() };
        let version = seal_site(&[("a.html", "x"), ("b.html", "x")]);
        let candidates = find_candidates(&version, &settings, &[], &mut LeftOutPages::default());
        assert_eq!(candidates.iter().map(|page| page.path.as_str()).collect::<Vec<_>>(), ["b.html"]);
    }
}
