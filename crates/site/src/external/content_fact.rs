//! The facts that the readers report about a file.

use docwharf_base::model::digest::Digest;

use super::source_format::SourceFormat;

/// The purpose for which a resource is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A script or module.
    Script,
    /// A style sheet, linked or imported.
    Style,
    /// A font.
    Font,
    /// An image, icon or background.
    Image,
    /// Audio, video or a text track.
    Media,
    /// A page in a frame.
    Frame,
    /// The content of an `object` or `embed` element.
    Object,
    /// A request of a script, such as `fetch` or a WebSocket.
    Connect,
    /// A worker: a script that runs in a separate thread.
    Worker,
    /// A web app manifest.
    Manifest,
    /// The target of a form.
    Form,
    /// The address in a `base` element, against which relative addresses are resolved.
    Base,
    /// The target to which a page redirects its reader (`meta http-equiv=refresh`).
    Refresh,
    /// A resource hint, on which nothing depends: preconnect, dns-prefetch, prefetch, prerender.
    Hint,
}

/// All kinds, in the order of their numbers in the policy file.
pub const RESOURCE_KINDS: [ResourceKind; 14] = [
    ResourceKind::Script,
    ResourceKind::Style,
    ResourceKind::Font,
    ResourceKind::Image,
    ResourceKind::Media,
    ResourceKind::Frame,
    ResourceKind::Object,
    ResourceKind::Connect,
    ResourceKind::Worker,
    ResourceKind::Manifest,
    ResourceKind::Form,
    ResourceKind::Base,
    ResourceKind::Refresh,
    ResourceKind::Hint,
];

impl ResourceKind {
    /// Returns the name of the kind in reports and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ResourceKind::Script => "script",
            ResourceKind::Style => "style",
            ResourceKind::Font => "font",
            ResourceKind::Image => "image",
            ResourceKind::Media => "media",
            ResourceKind::Frame => "frame",
            ResourceKind::Object => "object",
            ResourceKind::Connect => "connect",
            ResourceKind::Worker => "worker",
            ResourceKind::Manifest => "manifest",
            ResourceKind::Form => "form",
            ResourceKind::Base => "base",
            ResourceKind::Refresh => "refresh",
            ResourceKind::Hint => "hint",
        }
    }
}

/// One fact that was found in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum ContentFact<'a> {
    /// An address that a browser fetches, as written but with character references resolved.
    Address(ResourceKind, &'a str),
    /// An inline script, with the digest that is its hash source in a policy.
    InlineScript(Digest),
    /// An event handler attribute such as `onclick`.
    EventHandler(Digest),
    /// An inline style sheet.
    InlineStyle(Digest),
    /// A `style` attribute.
    StyleAttribute(Digest),
    /// The page runs a script from a file.
    ScriptFile,
    /// A `javascript:` address with code that has an effect.
    JavaScriptAddress,
    /// The page may have an inline script whose exact text, and therefore its hash, is not certain.
    UncertainScript,
    /// The page may have an inline style whose exact text, and therefore its hash, is not certain.
    UncertainStyle,
    /// A script evaluates text as code (`eval`, `Function`).
    UsesEval,
    /// A script runs WebAssembly.
    UsesWasm,
    /// A script installs a service worker.
    ServiceWorker,
    /// An address in a script whose purpose is not known.
    MentionedAddress(&'a str),
    /// A nested page (`srcdoc`) begins. Its `base` element does not apply to the outer page.
    NestedPageStart,
    /// The nested page has ended.
    NestedPageEnd,
}

/// A receiver of facts. Each thread has its own.
pub(super) trait FactSink {
    /// Receives a fact about the current file.
    fn record(&mut self, fact: ContentFact<'_>);
    /// Ends the current file, which is number `file` of the index.
    fn end_file(&mut self, file: usize, format: SourceFormat);
}
