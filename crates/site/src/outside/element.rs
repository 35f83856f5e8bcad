//! Which attributes of which elements name something that a browser fetches, and what for.

use lol_html::html_content::Element;

use super::address::{Leads, leads};
use super::page::Reader;
use super::references::resolved;
use super::{Fact, Kind};
use crate::links::{candidates, refresh};

impl Reader<'_> {
    /// Tells of what the attributes of an element name.
    pub(super) fn addresses(&mut self, tag: &str, element: &Element<'_, '_>) {
        let value = |name: &str| element.get_attribute(name);
        let source = if self.media { Kind::Media } else { Kind::Image };
        let mut one = |kind: Kind, name: &str| {
            if let Some(text) = value(name) {
                self.address(kind, &text);
            }
        };
        match tag {
            // Readers follow links themselves: only code in them counts, and whom a browser tells that they are followed.
            "a" | "area" => {
                for name in ["href", "xlink:href"] {
                    let code = value(name).filter(|text| text.trim_start().len() > 10);
                    if code.is_some_and(|text| leads(&resolved(&text).0) == Leads::Code) {
                        one(Kind::Refresh, name);
                    }
                }
                if let Some(all) = value("ping") {
                    resolved(&all).0.split_ascii_whitespace().for_each(|text| self.told(Kind::Connect, text));
                }
            }
            "base" => one(Kind::Base, "href"),
            "img" => {
                one(Kind::Image, "src");
                self.set(element, "srcset");
            }
            "video" | "audio" => {
                one(Kind::Media, "src");
                one(Kind::Image, "poster");
            }
            "source" => {
                one(source, "src");
                self.set(element, "srcset");
            }
            "track" => one(Kind::Media, "src"),
            "iframe" | "frame" => {
                one(Kind::Frame, "src");
                if let Some(text) = value("srcdoc") {
                    self.document(&text);
                }
            }
            "embed" => one(Kind::Object, "src"),
            "object" => one(Kind::Object, "data"),
            "form" => one(Kind::Form, "action"),
            "button" => one(Kind::Form, "formaction"),
            "input" => {
                one(Kind::Form, "formaction");
                one(Kind::Image, "src");
            }
            "body" | "table" | "td" | "th" => one(Kind::Image, "background"),
            "image" | "feimage" | "use" => {
                one(Kind::Image, "href");
                one(Kind::Image, "xlink:href");
            }
            "meta" => {
                if value("http-equiv").is_some_and(|name| name.eq_ignore_ascii_case("refresh"))
                    && let Some(text) = value("content").as_deref().and_then(refresh)
                {
                    self.address(Kind::Refresh, text);
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
            Kind::Style
        } else if has("modulepreload") {
            Kind::Script
        } else if has("preload") {
            match destination.as_str() {
                "script" => Kind::Script,
                "style" => Kind::Style,
                "font" => Kind::Font,
                "image" => Kind::Image,
                "audio" | "video" | "track" => Kind::Media,
                "document" | "embed" | "object" => Kind::Frame,
                "worker" => Kind::Worker,
                _ => Kind::Connect,
            }
        } else if has("icon") || has("apple-touch-icon") || has("apple-touch-icon-precomposed") || has("mask-icon") {
            Kind::Image
        } else if has("manifest") {
            Kind::Manifest
        } else if has("preconnect") || has("dns-prefetch") || has("prefetch") || has("prerender") {
            Kind::Hint
        } else {
            return;
        };
        if let Some(text) = element.get_attribute("href") {
            self.address(kind, &text);
        }
        if kind == Kind::Image {
            self.set(element, "imagesrcset");
        }
    }

    fn set(&mut self, element: &Element<'_, '_>, name: &str) {
        let Some(written) = element.get_attribute(name) else { return };
        let tell = &mut *self.tell;
        candidates(&resolved(&written).0, |text| tell(Fact::Address(Kind::Image, text)));
    }
}
