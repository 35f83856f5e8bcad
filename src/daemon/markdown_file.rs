//! Makes the file with the Markdown of all pages of the served version, after its search index.
//!
//! The task of the search index calls it when that is done: it has the same inputs, is cancelled for the same reasons,
//! and takes turns with the other builds. The same process makes it ([`index_process`](super::index_process)). A
//! failure is logged and nothing else: the site converts pages on request.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use docwharf_agent::store::derived::MARKDOWN;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_base::child_network::ChildNetwork;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_search::site_markdown::{SiteMarkdown, SiteMarkdownError};
use docwharf_serve::Site;
use docwharf_site::sealed_version::SealedVersion;

use super::index_process::{BuildProduct, IndexProgress, IndexTask, build_in_process};
use super::index_settings::IndexSettings;

/// The task of making the file.
pub(super) struct MarkdownTask<'a> {
    pub(super) site: &'a Site,
    pub(super) writer: &'a StoreWriter,
    pub(super) version: &'a SealedVersion,
    pub(super) settings: &'a IndexSettings,
    pub(super) network: ChildNetwork,
}

impl MarkdownTask<'_> {
    /// Returns whether the site serves what the file has, to readers, agents or the model.
    pub(super) fn is_needed(&self) -> bool {
        self.site
            .assistant_settings()
            .is_some_and(|settings| settings.markdown || settings.llms || settings.mcp || settings.ask.is_some())
    }

    /// Serves the stored file, if there is one that was made with these settings. One that cannot be used is removed.
    pub(super) fn serve_stored(&self) -> bool {
        let id = self.version.id;
        let Some(folder) = self.writer.store().open_derived_directory(id, MARKDOWN) else { return false };
        match SiteMarkdown::open(&folder, id) {
            Ok(file) if file.settings() == self.digest() => {
                self.serve(file);
                return true;
            }
            Ok(_) => {}
            Err(error @ SiteMarkdownError::OtherFormat(_)) => {
                tracing::info!("version {}: {}; it is made again", id.short(), ErrorChain(&error));
            }
            Err(error) => {
                let path = self.writer.store().derived_dir(id).join(MARKDOWN);
                tracing::warn!("cannot use {}: {}; it is made again", path.display(), ErrorChain(&error));
            }
        }
        if let Err(error) = self.writer.remove_derived(id, MARKDOWN) {
            tracing::warn!("{}", ErrorChain(&error));
        }
        false
    }

    /// Makes and serves the file. `may_continue` is called often; an error of it ends the process.
    pub(super) fn build(&self, may_continue: &mut dyn FnMut(IndexProgress) -> io::Result<()>) -> io::Result<()> {
        let (id, writer) = (self.version.id, self.writer);
        let started = Instant::now();
        let mut report = None;
        let written = writer.write_derived_directory(id, MARKDOWN, |directory| {
            let image = writer.store().image(id)?.into_file();
            let (version, settings, network) = (self.version, self.settings, self.network);
            let product = BuildProduct::SiteMarkdown;
            let task = IndexTask { version, image, settings, product, is_background: true, network };
            report = Some(build_in_process(task, directory, may_continue)?);
            Ok(())
        });
        written.map_err(|error| io::Error::other(ErrorChain(&error).to_string()))?;
        let folder = writer.store().open_derived_directory(id, MARKDOWN);
        let folder = folder.ok_or_else(|| io::Error::other("it has been removed"))?;
        self.serve(SiteMarkdown::open(&folder, id).map_err(io::Error::other)?);
        if let Some(report) = report {
            tracing::info!(
                "version {} has the Markdown of {} ({}); it took {} ms",
                id.short(),
                format_count(report.build.pages, "page"),
                format_size(report.build.bytes),
                started.elapsed().as_millis()
            );
        }
        Ok(())
    }

    fn serve(&self, file: SiteMarkdown) {
        self.site.set_site_markdown(Some(Arc::new(file)));
    }

    fn digest(&self) -> Digest {
        self.settings.markdown_digest()
    }
}
