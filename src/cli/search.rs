//! `docwharf search WORDS…`: searches a stored version, an archive or a folder, on the command line.
//!
//! A missing index is built first. That of a stored version is kept in the store, unless a daemon has the store open or
//! this user may not write to it; then, as for an archive or a folder, it is built in a temporary folder and not kept.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::config::checked::Config;
use crate::config::search::SearchConfig;
use crate::daemon::{
    BuildProduct, IndexProgress, IndexReport, IndexSettings, IndexTask, TemporaryFolder, build_in_process,
    estimate_index_bytes, find_space_problem,
};
use docwharf_agent::store::derived::SEARCH;
use docwharf_agent::store::space::SpaceLimits;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::store::{StoreError, VersionStore};
use docwharf_agent::sync::open;
use docwharf_agent::sync::system::TaskContext;
use docwharf_base::child_network::ChildNetwork;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_search::index::SearchIndex;
use docwharf_search::page::{DEFAULT_LIMIT, MAX_LIMIT, MAX_QUERY_CHARS, SearchResponse};
use docwharf_search::query::SearchRequest;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::seal::{SealOptions, SealProgress};
use docwharf_site::sealed_version::SealedVersion;

use super::context::{CommandContext, own_program_network};
use super::diff::find_version;
use super::failure::CommandFailure;
use super::interruptible::run_interruptible;
use super::output::wants_colour;
use super::search_output::{report_as_text, results_as_text};
use super::serve::{OpenBundle, seal_unlinked_with_image};

/// The longest time to wait for the end of a build after a signal, so that its files are removed.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct SearchCommand {
    /// The words; in double quotes within the argument, an exact phrase. Words that begin with - come after --
    #[arg(required_unless_present = "index_only")]
    words: Vec<String>,
    /// A label, 8 or more digits of an id, `active`, `previous` or `newest`, or an archive or a folder; default: the
    /// active version
    #[arg(long = "in", value_name = "VERSION|PATH")]
    target: Option<String>,
    /// The largest number of results
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LIMIT)))]
    limit: u32,
    /// Only pages below this path, which is below the base path
    #[arg(long, value_name = "PATH")]
    section: Option<String>,
    /// Only pages in this language, unless they have no result
    #[arg(long, value_name = "TAG")]
    lang: Option<String>,
    /// Build the index again and print its numbers, without searching
    #[arg(long, conflicts_with_all = ["words", "limit", "section", "lang"])]
    index_only: bool,
}

/// A version, archive or folder that `search` and `mcp` read.
#[derive(Debug)]
pub(super) enum SearchTarget {
    /// A version, and the limits of the store for an index that is kept in it. `None` if the configuration cannot be
    /// used: an index that is built without it must not stay.
    Stored(VersionStore, VersionId, Option<SpaceLimits>),
    Path(PathBuf, SealOptions),
}

/// An open index, and the report about it if it was built now.
struct PreparedIndex {
    index: SearchIndex,
    build: Option<FinishedBuild>,
}

/// An index that was built now.
struct FinishedBuild {
    report: IndexReport,
    /// Whether the index is in the store for later searches.
    is_kept: bool,
}

impl SearchCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let text = self.words.join(" ");
        if text.chars().count() > MAX_QUERY_CHARS {
            return Err(CommandFailure::Usage(format!("at most {MAX_QUERY_CHARS} characters can be searched for")));
        }
        let (target, config) = find_target(context, self.target.as_deref())?;
        let addresses = config
            .as_ref()
            .map_or_else(AddressSettings::default, |config| config.sync_settings.gate.address_settings.clone());
        let base_path = addresses.base_path.clone();
        let network = own_program_network(config.as_ref());
        let search = config.map_or_else(SearchConfig::default, |config| config.search);
        let settings = IndexSettings::new(addresses, search.exclude.clone());
        let prepared = prepare(context, target, settings, network, self.index_only)?;
        match prepared.build {
            Some(build) if self.index_only => print_report(context, prepared.index.version(), &build),
            _ => self.print_results(context, &prepared.index, &search, &text, &base_path),
        }
    }

    fn print_results(
        &self,
        context: &CommandContext,
        index: &SearchIndex,
        search: &SearchConfig,
        text: &str,
        base_path: &str,
    ) -> Result<(), CommandFailure> {
        let request = SearchRequest {
            limit: self.limit,
            section: self.section.as_deref(),
            lang: self.lang.as_deref(),
            ..SearchRequest::new(text, &search.synonyms.table)
        };
        let started = Instant::now();
        let outcome = index.search(&request, &|_| true).map_err(|error| local_failure("cannot search", &error))?;
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        let response = outcome.into_response(text, base_path, index.version(), false, ms);
        let in_bold = wants_colour(io::stdout().is_terminal());
        context.print_result(&response_as_json(&response)?, &results_as_text(&response, in_bold))?;
        if response.results.is_empty() { Err(CommandFailure::CheckFailed) } else { Ok(()) }
    }
}

/// Finds the version, archive or folder that the option `--in` names, and the configuration that applies to it. Without
/// the option it is the active version.
pub(super) fn find_target(
    context: &CommandContext,
    target: Option<&str>,
) -> Result<(SearchTarget, Option<Config>), CommandFailure> {
    if let Some(path) = target.filter(|target| target.contains('/') || matches!(*target, "." | "..")) {
        return path_target(context, Path::new(path));
    }
    let store = VersionStore::at(&context.store()?);
    let record = store.record()?;
    match (find_version(&store, &record, target.unwrap_or("active")), target) {
        (Ok(id), _) => {
            let config = context.config().ok();
            let space_limits = config.as_ref().map(|config| config.sync_settings.space_limits);
            Ok((SearchTarget::Stored(store, id, space_limits), config))
        }
        // A folder or archive in the working directory.
        (Err(CommandFailure::Store(StoreError::UnknownVersion(_))), Some(name)) if Path::new(name).exists() => {
            path_target(context, Path::new(name))
        }
        (Err(CommandFailure::Store(StoreError::UnknownVersion(_))), Some(name)) if is_archive_name(name) => {
            Err(CommandFailure::Usage(format!("--in {name}: there is no such file here, and no version of that name")))
        }
        (Err(failure), _) => Err(failure),
    }
}

/// Whether a name ends like that of an archive.
fn is_archive_name(name: &str) -> bool {
    [".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| name.ends_with(end))
}

fn path_target(context: &CommandContext, path: &Path) -> Result<(SearchTarget, Option<Config>), CommandFailure> {
    let config = context.named_config()?;
    let limits = context.limits()?;
    Ok((SearchTarget::Path(path.to_owned(), SealOptions::new(limits)), config))
}

/// Opens the index, or builds it. With `rebuild`, it is always built.
fn prepare(
    context: &CommandContext,
    target: SearchTarget,
    settings: IndexSettings,
    network: ChildNetwork,
    rebuild: bool,
) -> Result<PreparedIndex, CommandFailure> {
    if !rebuild
        && let SearchTarget::Stored(store, id, _) = &target
        && let Some(index) = open_stored(store, *id, &settings)
    {
        return Ok(PreparedIndex { index, build: None });
    }
    let (ended_sender, ended) = channel::<()>();
    let outcome = run_interruptible(context, move |task_context| {
        // Dropped when everything else has been removed.
        let _ended = ended_sender;
        match &target {
            SearchTarget::Stored(store, id, space_limits) => {
                build_stored(store, *id, space_limits.as_ref(), &settings, network, task_context)
            }
            SearchTarget::Path(path, seal_options) => {
                task_context.progress.set_step("verifying the bundle");
                let OpenBundle { version, image, .. } =
                    seal_unlinked_with_image(path, seal_options, &SealProgress::default())?;
                build_temporary(&version, image, &settings, network, task_context)
            }
        }
    });
    if outcome.is_err() {
        let _ = ended.recv_timeout(STOP_TIMEOUT);
    }
    outcome?
}

/// Opens the stored index of a version; `None` if there is none that can be used.
pub(super) fn open_stored(store: &VersionStore, id: VersionId, settings: &IndexSettings) -> Option<SearchIndex> {
    let directory = store.open_search_index(id)?;
    SearchIndex::open(&directory, id).ok().filter(|index| index.settings() == settings.digest())
}

/// Builds the index of a stored version: in the store, if this process can lock it and there is space within its
/// limits, else in a temporary folder.
fn build_stored(
    store: &VersionStore,
    id: VersionId,
    space_limits: Option<&SpaceLimits>,
    settings: &IndexSettings,
    network: ChildNetwork,
    task_context: &TaskContext,
) -> Result<PreparedIndex, CommandFailure> {
    let read_failure = || CommandFailure::local(format!("cannot read version {}", id.short()));
    let version = open::open_read_only(store, id).map_err(read_failure())?;
    let image = store.image(id).map_err(read_failure())?.into_file();
    let has_space =
        |limits: &SpaceLimits| matches!(find_space_problem(store, limits, estimate_index_bytes(&version), 0), Ok(None));
    let writer = space_limits
        .filter(|limits| has_space(limits))
        .and_then(|_| StoreWriter::open(store.root(), Duration::ZERO).ok());
    let Some(writer) = writer else { return build_temporary(&version, image, settings, network, task_context) };
    let mut report = None;
    writer.write_derived_directory(id, SEARCH, |directory| {
        report = Some(build(&version, image, settings, network, directory, task_context)?);
        Ok(())
    })?;
    let directory = store.open_search_index(id).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
    let directory = directory.map_err(CommandFailure::local("cannot open the search index"))?;
    let index =
        SearchIndex::open(&directory, id).map_err(|error| local_failure("cannot open the search index", &error))?;
    Ok(PreparedIndex { index, build: report.map(|report| FinishedBuild { report, is_kept: true }) })
}

/// Builds an index in a temporary folder, which is removed when the index is open.
fn build_temporary(
    version: &SealedVersion,
    image: File,
    settings: &IndexSettings,
    network: ChildNetwork,
    task_context: &TaskContext,
) -> Result<PreparedIndex, CommandFailure> {
    let failure = || CommandFailure::local("cannot build the search index");
    let folder = TemporaryFolder::create(None).map_err(failure())?;
    let report = build(version, image, settings, network, folder.directory(), task_context).map_err(failure())?;
    let opened = SearchIndex::open(folder.directory(), version.id);
    let index = opened.map_err(|error| local_failure("cannot open the search index", &error))?;
    Ok(PreparedIndex { index, build: Some(FinishedBuild { report, is_kept: false }) })
}

fn build(
    version: &SealedVersion,
    image: File,
    settings: &IndexSettings,
    network: ChildNetwork,
    directory: &Directory,
    task_context: &TaskContext,
) -> io::Result<IndexReport> {
    let progress = &task_context.progress;
    progress.set_step("building the search index");
    let product = BuildProduct::SearchIndex;
    let task = IndexTask { version, image, settings, product, is_background: false, network };
    build_in_process(task, directory, &mut |IndexProgress { done, pages }| {
        progress.set_percent((pages > 0).then(|| done as f64 * 100.0 / pages as f64));
        if *task_context.stop.borrow() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    })
}

fn local_failure(doing: &str, error: &(dyn std::error::Error + 'static)) -> CommandFailure {
    CommandFailure::local(doing)(io::Error::other(ErrorChain(error).to_string()))
}

/// Returns the answer as the site sends it, with the version of the format.
fn response_as_json(response: &SearchResponse) -> Result<Value, CommandFailure> {
    let mut json = serde_json::to_value(response).map_err(|error| CommandFailure::Output(error.into()))?;
    json["schemaVersion"] = json!(1);
    Ok(json)
}

fn print_report(context: &CommandContext, id: VersionId, build: &FinishedBuild) -> Result<(), CommandFailure> {
    let mut json = serde_json::to_value(&build.report).map_err(|error| CommandFailure::Output(error.into()))?;
    json["schemaVersion"] = json!(1);
    json["version"] = json!(id);
    json["kept"] = json!(build.is_kept);
    context.print_result(&json, &report_as_text(id, &build.report, build.is_kept))
}
