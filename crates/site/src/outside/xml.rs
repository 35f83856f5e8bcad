//! Documents in XML, made into HTML that names the same addresses: then one reader knows what elements mean.
//!
//! A browser reads them by other rules: any element may close itself, `CDATA` is text, elements have prefixes, styles are
//! named by processing instructions. What is made here is read for its addresses only. The text of scripts and styles is
//! not that of the document any more, so no policy may name it; such documents allow what stands in them.

use std::borrow::Cow;
use std::collections::HashSet;

use super::references::resolved;

/// The namespaces whose elements fetch something.
const KNOWN: [&str; 2] = ["http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"];

/// HTML that names what `xml` names. `is_known` says that elements without a prefix count wherever they are declared, as
/// in a drawing; otherwise only elements count whose prefix (or want of one) is declared for HTML or SVG somewhere.
pub(super) fn as_html(xml: &str, is_known: bool) -> String {
    let mut prefixes = prefixes(xml);
    if is_known {
        prefixes.insert("");
    }
    let mut maker = Maker { out: String::with_capacity(xml.len().min(1 << 16)), prefixes, is_code: false };
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        maker.text(&resolved(&rest[..at]).0);
        let Some(behind) = maker.markup(&rest[at..]) else { break };
        rest = behind;
    }
    maker.out
}

/// The prefixes that stand for a known namespace anywhere; the empty one where it is the default.
fn prefixes(xml: &str) -> HashSet<&str> {
    let mut found = HashSet::new();
    for (at, word) in xml.match_indices("xmlns") {
        let rest = &xml[at + word.len()..];
        let name_end = rest.bytes().take(64).position(|b| b == b'=' || b.is_ascii_whitespace());
        let Some((name, value)) = name_end.map(|end| rest.split_at(end)) else { continue };
        let prefix = if name.is_empty() { Some("") } else { name.strip_prefix(':') };
        let value = value.trim_start().strip_prefix('=').map_or("", str::trim_start);
        let Some(value) = value.strip_prefix(['"', '\'']) else { continue };
        let is_known =
            KNOWN.iter().any(|known| value.strip_prefix(known).is_some_and(|end| end.starts_with(['"', '\''])));
        found.extend(prefix.filter(|_| is_known));
    }
    found
}

struct Maker<'a> {
    out: String,
    prefixes: HashSet<&'a str>,
    /// Whether what is read stands in a script or style.
    is_code: bool,
}

impl Maker<'_> {
    /// Text counts only as code; no tag may begin or end in it.
    fn text(&mut self, text: &str) {
        if self.is_code {
            self.out.extend(text.chars().map(|c| if matches!(c, '<' | '&') { ' ' } else { c }));
        }
    }

    /// Takes what begins with `<`, and gives what is behind it; none if it does not end.
    fn markup<'t>(&mut self, all: &'t str) -> Option<&'t str> {
        if let Some(rest) = all.strip_prefix("<!--") {
            return Some(rest.split_once("-->")?.1);
        }
        if let Some(rest) = all.strip_prefix("<![CDATA[") {
            let (text, behind) = rest.split_once("]]>")?;
            self.text(text);
            return Some(behind);
        }
        if let Some(rest) = all.strip_prefix("<?") {
            let (text, behind) = rest.split_once("?>")?;
            self.instruction(text);
            return Some(behind);
        }
        if all.starts_with("<!") {
            let end = all.find('>')?;
            // Declarations within it have a `>` each; one that holds a bracket ends it too early, which does no harm.
            let end = if all[..end].contains('[') { end.max(all.find("]>")?) } else { end };
            return Some(all[end..].split_once('>')?.1);
        }
        if let Some(rest) = all.strip_prefix("</") {
            let (name, behind) = rest.split_once('>')?;
            if let Some(local) = self.local(name.trim()) {
                self.is_code = false;
                self.out.extend(["</", local, ">"]);
            }
            return Some(behind);
        }
        self.tag(&all[1..])
    }

    fn tag<'t>(&mut self, all: &'t str) -> Option<&'t str> {
        let mut quote = None;
        let end = all.bytes().position(|b| {
            match (quote, b) {
                (None, b'"' | b'\'') => quote = Some(b),
                (Some(open), _) if open == b => quote = None,
                _ => {}
            }
            quote.is_none() && b == b'>'
        })?;
        let (tag, behind) = (&all[..end], &all[end + 1..]);
        let is_closed = tag.ends_with('/');
        let tag = tag.strip_suffix('/').unwrap_or(tag);
        let name_end = tag.find(|c: char| c.is_ascii_whitespace()).unwrap_or(tag.len());
        if let Some(local) = self.local(&tag[..name_end]) {
            self.out.extend(["<", local, &tag[name_end..], " >"]);
            if is_closed {
                self.out.extend(["</", local, ">"]);
            } else {
                self.is_code = matches!(local, "script" | "style");
            }
        }
        Some(behind)
    }

    /// A name without its prefix, if such elements count. Elements whose content HTML takes for text are left out: in XML
    /// there are elements in them.
    fn local<'t>(&self, name: &'t str) -> Option<&'t str> {
        const TEXT: [&str; 9] =
            ["title", "textarea", "noscript", "xmp", "noembed", "noframes", "plaintext", "template", "select"];
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        let is_name = !local.is_empty() && local.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        let counts = is_name && self.prefixes.contains(prefix);
        (counts && !TEXT.iter().any(|text| local.eq_ignore_ascii_case(text))).then_some(local)
    }

    /// A style is named by an instruction, and so is a program that makes another document of this one, which a policy
    /// takes for a script.
    fn instruction(&mut self, text: &str) {
        let Some(rest) =
            text.strip_prefix("xml-stylesheet").filter(|rest| rest.starts_with(|c: char| c.is_whitespace()))
        else {
            return;
        };
        let of = |name: &str| -> Option<Cow<'_, str>> {
            let (_, value) =
                rest.match_indices(name).map(|(at, _)| rest.split_at(at + name.len())).find(|(before, value)| {
                    before[..before.len() - name.len()].ends_with(|c: char| c.is_whitespace())
                        && value.trim_start().starts_with('=')
                })?;
            let value = value.trim_start().strip_prefix('=')?.trim_start();
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            value[1..].split(quote).next().map(|value| resolved(value).0)
        };
        let Some(address) = of("href") else { return };
        let kind = of("type").unwrap_or_default().to_ascii_lowercase();
        let address = address.replace('&', "&amp;").replace('"', "&quot;");
        if kind.ends_with("xsl") || kind.ends_with("xml") {
            self.out.extend(["<script src=\"", &address, "\"></script>"]);
        } else {
            self.out.extend(["<link rel=\"stylesheet\" href=\"", &address, "\">"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_in_xml_names_the_same_in_html() {
        let xml = r#"<?xml version="1.0"?><?xml-stylesheet type="text/css" href="a&amp;b.css"?>
            <?xml-stylesheet alternate="no" type='text/xsl' href='t.xsl' ?><?xml-stylesheets href="no"?>
            <!DOCTYPE html [<!ENTITY a "<img src='no'/>">]><html xmlns="http://www.w3.org/1999/xhtml" xmlns:s='http://www.w3.org/2000/svg'
            xmlns:m="http://media.example/"><title><b/></title><script src="a.js"/><script>a &lt; b <![CDATA[</script>]]></script>
            <!-- <img src="no"/> --><img alt="a > b" src='i.png'/><m:img src="no"/><s:image href="d.png"></s:image></html>"#;
        let html = as_html(xml, false);
        assert!(
            html.starts_with(r#"<link rel="stylesheet" href="a&amp;b.css"><script src="t.xsl"></script><html "#),
            "{html}"
        );
        assert!(
            html.contains(r#"<b ></b><script src="a.js" ></script><script >a   b  /script></script><img "#),
            "{html}"
        );
        assert!(
            html.ends_with(r#"<img alt="a > b" src='i.png' ></img><image href="d.png" ></image></html>"#),
            "{html}"
        );
    }

    #[test]
    fn elements_of_other_languages_fetch_nothing() {
        let xml = r#"<feed xmlns="http://www.w3.org/2005/Atom"><link rel="icon" href="no"/></feed>"#;
        assert_eq!(as_html(xml, false), "");
        assert!(as_html("<svg><image href='a'/></svg>", true).contains("<image href='a' >"));
    }

    #[test]
    fn broken_documents_end_where_they_end() {
        for xml in [
            "<",
            "<!",
            "<!--",
            "<![CDATA[",
            "<?",
            "<a",
            "<a b='",
            "</",
            "</a",
            "<!DOCTYPE a [",
            "xmlns",
            "xmlns:",
            "xmlns=",
            "xmlns:a='",
            "<é",
            "<a:",
            "<?xml-stylesheet ?>",
            "<?xml-stylesheet href?>",
            "<?xml-stylesheet href=é?>",
        ] {
            as_html(xml, true);
            as_html(&xml.repeat(1 << 14), true);
        }
    }
}
