//! The attributes of HTML and SVG elements that name resources, and the purpose of each.

use lol_html::html_content::Element;

use super::address::{AddressTarget, classify_address};
use super::character_references::resolve_references;
use super::content_fact::{ContentFact, ResourceKind};
use super::page::PageReader;
use crate::links::{refresh_address, srcset_addresses};

impl PageReader<'_> {
    /// Reports the addresses in the attributes of an element.
    pub(super) fn report_addresses(&mut self, tag: &str, element: &Element<'_, '_>) {
        let value = |name: &str| element.get_attribute(name);
        let source_kind = if self.in_media { ResourceKind::Media } else { ResourceKind::Image };
        let mut report_attribute = |kind: ResourceKind, name: &str| {
            if let Some(text) = value(name) {
                self.report_attribute_address(kind, &text);
            }
        };
        match tag {
            // A browser does not fetch links automatically. Only `javascript:` addresses matter, and the addresses in
            // `ping`, to which a browser reports that a link was followed.
            "a" | "area" => {
                for name in ["href", "xlink:href"] {
                    let code = value(name).filter(|text| text.trim_start().len() > 10);
                    if code
                        .is_some_and(|text| classify_address(&resolve_references(&text).0) == AddressTarget::JavaScript)
                    {
                        report_attribute(ResourceKind::Refresh, name);
                    }
                }
                if let Some(addresses) = value("ping") {
                    resolve_references(&addresses)
                        .0
                        .split_ascii_whitespace()
                        .for_each(|text| self.report_address(ResourceKind::Connect, text));
                }
            }
            "base" => report_attribute(ResourceKind::Base, "href"),
            "img" => {
                report_attribute(ResourceKind::Image, "src");
                self.report_srcset(element, "srcset");
            }
            "video" | "audio" => {
                report_attribute(ResourceKind::Media, "src");
                report_attribute(ResourceKind::Image, "poster");
            }
            "source" => {
                report_attribute(source_kind, "src");
                self.report_srcset(element, "srcset");
            }
            "track" => report_attribute(ResourceKind::Media, "src"),
            "iframe" | "frame" => {
                report_attribute(ResourceKind::Frame, "src");
                if let Some(text) = value("srcdoc") {
                    self.read_srcdoc(&text);
                }
            }
            "embed" => report_attribute(ResourceKind::Object, "src"),
            "object" => report_attribute(ResourceKind::Object, "data"),
            "form" => report_attribute(ResourceKind::Form, "action"),
            "button" => report_attribute(ResourceKind::Form, "formaction"),
            "input" => {
                report_attribute(ResourceKind::Form, "formaction");
                report_attribute(ResourceKind::Image, "src");
            }
            "body" | "table" | "td" | "th" => report_attribute(ResourceKind::Image, "background"),
            "image" | "feimage" | "use" => {
                report_attribute(ResourceKind::Image, "href");
                report_attribute(ResourceKind::Image, "xlink:href");
            }
            "meta" => {
                if value("http-equiv").is_some_and(|name| name.eq_ignore_ascii_case("refresh"))
                    && let Some(text) = value("content").as_deref().and_then(refresh_address)
                {
                    self.report_attribute_address(ResourceKind::Refresh, text);
                }
            }
            "link" => self.report_link(element),
            _ => {}
        }
    }

    fn report_link(&mut self, element: &Element<'_, '_>) {
        let words = element.get_attribute("rel").unwrap_or_default().to_ascii_lowercase();
        let has_word = |word: &str| words.split_ascii_whitespace().any(|candidate| candidate == word);
        let destination = element.get_attribute("as").unwrap_or_default().to_ascii_lowercase();
        let kind = if has_word("stylesheet") {
            ResourceKind::Style
        } else if has_word("modulepreload") {
            ResourceKind::Script
        } else if has_word("preload") {
            match destination.as_str() {
                "script" => ResourceKind::Script,
                "style" => ResourceKind::Style,
                "font" => ResourceKind::Font,
                "image" => ResourceKind::Image,
                "audio" | "video" | "track" => ResourceKind::Media,
                "document" | "embed" | "object" => ResourceKind::Frame,
                "worker" => ResourceKind::Worker,
                _ => ResourceKind::Connect,
            }
        } else if has_word("icon")
            || has_word("apple-touch-icon")
            || has_word("apple-touch-icon-precomposed")
            || has_word("mask-icon")
        {
            ResourceKind::Image
        } else if has_word("manifest") {
            ResourceKind::Manifest
        } else if has_word("preconnect") || has_word("dns-prefetch") || has_word("prefetch") || has_word("prerender") {
            ResourceKind::Hint
        } else {
            return;
        };
        if let Some(text) = element.get_attribute("href") {
            self.report_attribute_address(kind, &text);
        }
        if kind == ResourceKind::Image {
            self.report_srcset(element, "imagesrcset");
        }
    }

    fn report_srcset(&mut self, element: &Element<'_, '_>, name: &str) {
        let Some(written) = element.get_attribute(name) else { return };
        let report = &mut *self.report;
        srcset_addresses(&resolve_references(&written).0, |text| {
            report(ContentFact::Address(ResourceKind::Image, text));
        });
    }
}
