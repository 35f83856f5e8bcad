//! The attributes of HTML and SVG elements that name resources, and the purpose of each.

use lol_html::html_content::Element;

use super::address::{AddressTarget, classify_address};
use super::character_references::resolve_references;
use super::content_fact::{ContentFact, ResourceKind};
use super::page::PageReader;
use crate::links::{refresh_address, srcset_addresses};

impl PageReader<'_> {
    /// Reports the addresses in the attributes of an element.
    pub(super) fn addresses(&mut self, tag: &str, element: &Element<'_, '_>) {
        let value = |name: &str| element.get_attribute(name);
        let source = if self.media { ResourceKind::Media } else { ResourceKind::Image };
        let mut one = |kind: ResourceKind, name: &str| {
            if let Some(text) = value(name) {
                self.address(kind, &text);
            }
        };
        match tag {
            // A browser does not fetch links by itself. Only `javascript:` addresses matter, and the addresses in
            // `ping`, to which a browser reports that a link was followed.
            "a" | "area" => {
                for name in ["href", "xlink:href"] {
                    let code = value(name).filter(|text| text.trim_start().len() > 10);
                    if code
                        .is_some_and(|text| classify_address(&resolve_references(&text).0) == AddressTarget::JavaScript)
                    {
                        one(ResourceKind::Refresh, name);
                    }
                }
                if let Some(all) = value("ping") {
                    resolve_references(&all)
                        .0
                        .split_ascii_whitespace()
                        .for_each(|text| self.report_address(ResourceKind::Connect, text));
                }
            }
            "base" => one(ResourceKind::Base, "href"),
            "img" => {
                one(ResourceKind::Image, "src");
                self.set(element, "srcset");
            }
            "video" | "audio" => {
                one(ResourceKind::Media, "src");
                one(ResourceKind::Image, "poster");
            }
            "source" => {
                one(source, "src");
                self.set(element, "srcset");
            }
            "track" => one(ResourceKind::Media, "src"),
            "iframe" | "frame" => {
                one(ResourceKind::Frame, "src");
                if let Some(text) = value("srcdoc") {
                    self.document(&text);
                }
            }
            "embed" => one(ResourceKind::Object, "src"),
            "object" => one(ResourceKind::Object, "data"),
            "form" => one(ResourceKind::Form, "action"),
            "button" => one(ResourceKind::Form, "formaction"),
            "input" => {
                one(ResourceKind::Form, "formaction");
                one(ResourceKind::Image, "src");
            }
            "body" | "table" | "td" | "th" => one(ResourceKind::Image, "background"),
            "image" | "feimage" | "use" => {
                one(ResourceKind::Image, "href");
                one(ResourceKind::Image, "xlink:href");
            }
            "meta" => {
                if value("http-equiv").is_some_and(|name| name.eq_ignore_ascii_case("refresh"))
                    && let Some(text) = value("content").as_deref().and_then(refresh_address)
                {
                    self.address(ResourceKind::Refresh, text);
                }
            }
            "link" => self.link(element),
            _ => {}
        }
    }

    fn link(&mut self, element: &Element<'_, '_>) {
        let words = element.get_attribute("rel").unwrap_or_default().to_ascii_lowercase();
        let has = |word: &str| words.split_ascii_whitespace().any(|one| one == word);
        let destination = element.get_attribute("as").unwrap_or_default().to_ascii_lowercase();
        let kind = if has("stylesheet") {
            ResourceKind::Style
        } else if has("modulepreload") {
            ResourceKind::Script
        } else if has("preload") {
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
        } else if has("icon") || has("apple-touch-icon") || has("apple-touch-icon-precomposed") || has("mask-icon") {
            ResourceKind::Image
        } else if has("manifest") {
            ResourceKind::Manifest
        } else if has("preconnect") || has("dns-prefetch") || has("prefetch") || has("prerender") {
            ResourceKind::Hint
        } else {
            return;
        };
        if let Some(text) = element.get_attribute("href") {
            self.address(kind, &text);
        }
        if kind == ResourceKind::Image {
            self.set(element, "imagesrcset");
        }
    }

    fn set(&mut self, element: &Element<'_, '_>, name: &str) {
        let Some(written) = element.get_attribute(name) else { return };
        let tell = &mut *self.tell;
        srcset_addresses(&resolve_references(&written).0, |text| tell(ContentFact::Address(ResourceKind::Image, text)));
    }
}
