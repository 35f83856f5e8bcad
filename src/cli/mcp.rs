//! `docwharf mcp`: an MCP server on standard input and output, for a coding agent that starts this program.
//!
//! Standard output has the messages of the protocol only; warnings go to standard error. The server ends when the agent
//! closes standard input.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::search::SearchConfig;
use crate::daemon::{IndexSettings, OnDemandIndex};
use docwharf_agent::store::derived::MARKDOWN;
use docwharf_agent::sync::open;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::runtime;
use docwharf_search::index::SearchIndex;
use docwharf_search::site_markdown::SiteMarkdown;
use docwharf_serve::mcp::{McpServer, serve_stdio};
use docwharf_serve::{Site, SiteSettings};
use docwharf_site::lookup::AddressSettings;
use docwharf_site::seal::SealProgress;
use docwharf_site::sealed_version::SealedVersion;

use super::context::{CommandContext, own_program_network};
use super::failure::CommandFailure;
use super::search::{SearchTarget, find_target, open_stored};
use super::serve::seal_unlinked_with_image;

/// The longest time that a search waits for the index, which is built at the first one.
const INDEX_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of SIGINT, for the exit code.
const SIGINT_NUMBER: u8 = 2;
/// The number of SIGTERM, for the exit code.
const SIGTERM_NUMBER: u8 = 15;

#[derive(Debug, Args)]
pub(super) struct McpCommand {
    /// A label, 8 or more digits of an id, `active`, `previous` or `newest`, or an archive or a folder; default: the
    /// active version
    #[arg(long = "in", value_name = "VERSION|PATH")]
    target: Option<String>,
}

/// A version that is open, with its image, its stored index, and the stored Markdown of its pages.
struct OpenTarget {
    version: SealedVersion,
    image: File,
    index: Option<SearchIndex>,
    markdown: Option<SiteMarkdown>,
}

impl McpCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let (target, config) = find_target(context, self.target.as_deref())?;
        let network = own_program_network(config.as_ref());
        let rules = config.as_ref().map(|config| Arc::clone(&config.rules)).unwrap_or_default();
        let search = config.as_ref().map_or_else(SearchConfig::default, |config| config.search.clone());
        // Of `[assistant]`, the hosts count: an address with one of them leads to a page.
        let assistant = config.as_ref().map(|config| config.assistant.clone()).unwrap_or_default();
        let settings = config.map_or_else(SiteSettings::default, |config| config.settings);
        let addresses = AddressSettings {
            base_path: settings.base_path.clone(),
            slashes: settings.slashes,
            rules: Arc::clone(&rules),
        };
        let index_settings = IndexSettings::new(addresses, search.exclude.clone()).with_markdown(assistant.markdown);
        let OpenTarget { version, image, index, markdown } = open_target(context, target, &index_settings)?;
        let site = Site::new(settings);
        site.set_rules(rules);
        site.set_assistant_settings(Some(Arc::new(assistant)));
        site.set_search_settings(Arc::new(search.to_site_settings()));
        let on_demand = OnDemandIndex::new(&site, index_settings, network);
        let id = version.id;
        site.set_version(version);
        site.set_site_markdown(markdown.map(Arc::new));
        match index {
            Some(index) => site.set_search_index(Some(Arc::new(index))),
            None => on_demand.update_version(id, image),
        }
        let result = serve_until_closed(&site);
        on_demand.stop();
        result
    }
}

fn open_target(
    context: &CommandContext,
    target: SearchTarget,
    index_settings: &IndexSettings,
) -> Result<OpenTarget, CommandFailure> {
    match target {
        SearchTarget::Stored(store, id, _) => {
            let read_failure = || CommandFailure::local(format!("cannot read version {}", id.short()));
            let version = open::open_read_only(&store, id).map_err(read_failure())?;
            let image = store.image(id).map_err(read_failure())?.into_file();
            let index = open_stored(&store, id, index_settings);
            let markdown = store.open_derived_directory(id, MARKDOWN).and_then(|directory| {
                SiteMarkdown::open(&directory, id)
                    .ok()
                    .filter(|file| file.settings() == index_settings.markdown_digest())
            });
            Ok(OpenTarget { version, image, index, markdown })
        }
        SearchTarget::Path(path, seal_options) => {
            let bundle = seal_unlinked_with_image(&path, &seal_options, &SealProgress::default())?;
            context.print_warnings(&path.display().to_string(), &bundle.warnings);
            Ok(OpenTarget { version: bundle.version, image: bundle.image, index: None, markdown: None })
        }
    }
}

/// Answers messages until the client closes standard input, or a signal ends the process.
fn serve_until_closed(site: &Arc<Site>) -> Result<(), CommandFailure> {
    let start = CommandFailure::local("cannot start");
    let runtime =
        runtime::build_runtime(tokio::runtime::Builder::new_multi_thread().worker_threads(1)).map_err(start)?;
    let result = runtime.block_on(async {
        let listen = |kind| signal(kind).map_err(CommandFailure::local("cannot listen for signals"));
        let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let version = site.served_version().ok_or_else(|| CommandFailure::Bug("no version is served".to_owned()))?;
        let server = McpServer::new(Arc::clone(site), version, INDEX_TIMEOUT);
        tokio::select! {
            result = serve_stdio(server) => result.map_err(|error| {
                let error = std::io::Error::other(ErrorChain(&error).to_string());
                CommandFailure::local("cannot serve standard input and output")(error)
            }),
            _ = interrupt.recv() => Err(CommandFailure::Signal(SIGINT_NUMBER)),
            _ = terminate.recv() => Err(CommandFailure::Signal(SIGTERM_NUMBER)),
        }
    });
    // A read of standard input that waits cannot be cancelled.
    runtime.shutdown_background();
    result
}
