//! Converts XML documents into HTML that names the same addresses, so that only the HTML reader needs to know the
//! meaning of elements.
//!
//! A browser parses XML by other rules: any element may be self-closing, `CDATA` is text, elements have prefixes, and
//! processing instructions link style sheets. The result is read for its addresses only. The text of scripts and styles
//! is changed, so their hashes are wrong and no policy may contain them; the policy of such a document allows inline
//! code without hashes.

use std::borrow::Cow;
use std::collections::HashSet;

use super::character_references::resolve_references;

/// The namespaces whose elements can fetch resources: HTML and SVG.
const KNOWN_NAMESPACES: [&str; 2] = ["http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"];

/// Converts `xml` into HTML that names the same addresses. Only elements whose prefix is declared for HTML or SVG
/// somewhere in the document are kept; elements without a prefix need such a default namespace. If `keeps_unprefixed`
/// is set, as for SVG images, elements without a prefix are always kept.
pub(super) fn xml_to_html(xml: &str, keeps_unprefixed: bool) -> String {
    let mut prefixes = find_prefixes(xml);
    if keeps_unprefixed {
        prefixes.insert("");
    }
    let mut writer = HtmlWriter { html: String::with_capacity(xml.len().min(1 << 16)), prefixes, is_code: false };
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        writer.write_code(&resolve_references(&rest[..start]).0);
        let Some(after) = writer.convert_markup(&rest[start..]) else { break };
        rest = after;
    }
    writer.html
}

/// Finds the prefixes that are declared for a known namespace anywhere in the document. The empty prefix stands for a
/// default namespace.
fn find_prefixes(xml: &str) -> HashSet<&str> {
    let mut prefixes = HashSet::new();
    for (offset, attribute) in xml.match_indices("xmlns") {
        let rest = &xml[offset + attribute.len()..];
        let name_end = rest.bytes().take(64).position(|b| b == b'=' || b.is_ascii_whitespace());
        let Some((name, value)) = name_end.map(|end| rest.split_at(end)) else { continue };
        let prefix = if name.is_empty() { Some("") } else { name.strip_prefix(':') };
        let value = value.trim_start().strip_prefix('=').map_or("", str::trim_start);
        let Some(value) = value.strip_prefix(['"', '\'']) else { continue };
        let is_known_namespace = KNOWN_NAMESPACES
            .iter()
            .any(|namespace| value.strip_prefix(namespace).is_some_and(|end| end.starts_with(['"', '\''])));
        prefixes.extend(prefix.filter(|_| is_known_namespace));
    }
    prefixes
}

/// The writer of the HTML.
struct HtmlWriter<'a> {
    html: String,
    prefixes: HashSet<&'a str>,
    /// Whether the current position is inside a script or style.
    is_code: bool,
}

impl HtmlWriter<'_> {
    /// Writes text, if it is code. `<` and `&` are replaced, so that no tag begins or ends in it.
    fn write_code(&mut self, text: &str) {
        if self.is_code {
            self.html.extend(text.chars().map(|c| if matches!(c, '<' | '&') { ' ' } else { c }));
        }
    }

    /// Converts the markup at the start of `markup`, which begins with `<`, and returns the text after it. `None` if
    /// the markup does not end.
    fn convert_markup<'t>(&mut self, markup: &'t str) -> Option<&'t str> {
        if let Some(rest) = markup.strip_prefix("<!--") {
            return Some(rest.split_once("-->")?.1);
        }
        if let Some(rest) = markup.strip_prefix("<![CDATA[") {
            let (text, after) = rest.split_once("]]>")?;
            self.write_code(text);
            return Some(after);
        }
        if let Some(rest) = markup.strip_prefix("<?") {
            let (text, after) = rest.split_once("?>")?;
            self.convert_instruction(text);
            return Some(after);
        }
        if markup.starts_with("<!") {
            let end = markup.find('>')?;
            // The declarations in a DOCTYPE have a `>` each. A declaration that contains `]>` ends the DOCTYPE too
            // early, which does no harm.
            let end = if markup[..end].contains('[') { end.max(markup.find("]>")?) } else { end };
            return Some(markup[end..].split_once('>')?.1);
        }
        if let Some(rest) = markup.strip_prefix("</") {
            let (name, after) = rest.split_once('>')?;
            if let Some(local) = self.local_name(name.trim()) {
                self.is_code = false;
                self.html.extend(["</", local, ">"]);
            }
            return Some(after);
        }
        self.convert_tag(&markup[1..])
    }

    fn convert_tag<'t>(&mut self, markup: &'t str) -> Option<&'t str> {
        let mut quote = None;
        let end = markup.bytes().position(|b| {
            match (quote, b) {
                (None, b'"' | b'\'') => quote = Some(b),
                (Some(open), _) if open == b => quote = None,
                _ => {}
            }
            quote.is_none() && b == b'>'
        })?;
        let (tag, after) = (&markup[..end], &markup[end + 1..]);
        let is_closed = tag.ends_with('/');
        let tag = tag.strip_suffix('/').unwrap_or(tag);
        let name_end = tag.find(|c: char| c.is_ascii_whitespace()).unwrap_or(tag.len());
        if let Some(local) = self.local_name(&tag[..name_end]) {
            self.html.extend(["<", local, &tag[name_end..], " >"]);
            if is_closed {
                self.html.extend(["</", local, ">"]);
            } else {
                self.is_code = matches!(local, "script" | "style");
            }
        }
        Some(after)
    }

    /// Returns a name without its prefix, if the element is kept. Elements whose content HTML parses as text are left
    /// out, because in XML they may contain elements.
    fn local_name<'t>(&self, name: &'t str) -> Option<&'t str> {
        const TEXT_ELEMENTS: [&str; 9] =
            ["title", "textarea", "noscript", "xmp", "noembed", "noframes", "plaintext", "template", "select"];
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        let is_name = !local.is_empty() && local.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        let is_kept = is_name && self.prefixes.contains(prefix);
        (is_kept && !TEXT_ELEMENTS.iter().any(|text| local.eq_ignore_ascii_case(text))).then_some(local)
    }

    /// Converts an `xml-stylesheet` processing instruction. It links a style sheet, or an XSLT program, for which a
    /// policy applies the rules for scripts.
    fn convert_instruction(&mut self, text: &str) {
        let Some(rest) =
            text.strip_prefix("xml-stylesheet").filter(|rest| rest.starts_with(|c: char| c.is_whitespace()))
        else {
            return;
        };
        let attribute = |name: &str| -> Option<Cow<'_, str>> {
            let (_, value) =
                rest.match_indices(name).map(|(at, _)| rest.split_at(at + name.len())).find(|(before, value)| {
                    before[..before.len() - name.len()].ends_with(|c: char| c.is_whitespace())
                        && value.trim_start().starts_with('=')
                })?;
            let value = value.trim_start().strip_prefix('=')?.trim_start();
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            value[1..].split(quote).next().map(|value| resolve_references(value).0)
        };
        let Some(address) = attribute("href") else { return };
        let kind = attribute("type").unwrap_or_default().to_ascii_lowercase();
        let address = address.replace('&', "&amp;").replace('"', "&quot;");
        if kind.ends_with("xsl") || kind.ends_with("xml") {
            self.html.extend(["<script src=\"", &address, "\"></script>"]);
        } else {
            self.html.extend(["<link rel=\"stylesheet\" href=\"", &address, "\">"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_document_is_converted_to_html_with_the_same_addresses() {
        let xml = r#"<?xml version="1.0"?><?xml-stylesheet type="text/css" href="a&amp;b.css"?>
            <?xml-stylesheet alternate="no" type='text/xsl' href='t.xsl' ?><?xml-stylesheets href="no"?>
            <!DOCTYPE html [<!ENTITY a "<img src='no'/>">]><html xmlns="http://www.w3.org/1999/xhtml" xmlns:s='http://www.w3.org/2000/svg'
            xmlns:m="http://media.example/"><title><b/></title><script src="a.js"/><script>a &lt; b <![CDATA[</script>]]></script>
            <!-- <img src="no"/> --><img alt="a > b" src='i.png'/><m:img src="no"/><s:image href="d.png"></s:image></html>"#;
        let html = xml_to_html(xml, false);
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
    fn elements_of_unknown_xml_namespaces_yield_no_addresses() {
        let xml = r#"<feed xmlns="http://www.w3.org/2005/Atom"><link rel="icon" href="no"/></feed>"#;
        assert_eq!(xml_to_html(xml, false), "");
        assert!(xml_to_html("<svg><image href='a'/></svg>", true).contains("<image href='a' >"));
    }

    #[test]
    fn truncated_xml_documents_cause_no_panic() {
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
            xml_to_html(xml, true);
            xml_to_html(&xml.repeat(1 << 14), true);
        }
    }
}
