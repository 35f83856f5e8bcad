//! `docwharf serve PATH`: serves one archive or folder without a store. From a named configuration it uses `[limits]`,
//! `[access]`, `[search]`, `[assistant]`, `[playground]`, the rules and all of `SiteSettings` except base path, slashes
//! and security headers, which are options here.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;

use crate::config::access::exposure_warning;
use crate::config::checked::DEFAULT_LISTEN;
use crate::config::search::{SearchConfig, parse_inject_mode};
use crate::config::security_headers::{DEFAULT_CSP_BYTES, parse_csp, security_header_settings};
use crate::config::value_parsers::{parse_base_path, parse_listen, parse_slashes};
use crate::daemon::{self, IndexSettings, OnDemandIndex, serve_policies_without_store};
use docwharf_base::clock::unix_seconds;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_serve::key_pair::KeyPairFiles;
use docwharf_serve::{Site, SiteSettings};
use docwharf_site::bundle::folder::FolderReader;
use docwharf_site::index::ImageIndex;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::mapping;
use docwharf_site::seal::{self, ImageTarget, SealOptions, SealProgress, SealedBundle, VerifiedBundle};
use docwharf_site::sealed_version::SealedVersion;

use super::context::{CommandContext, own_program_network};
use super::failure::CommandFailure;
use super::progress;

#[derive(Debug, Args)]
pub(super) struct ServeCommand {
    /// A zip, tar, tar.gz or tar.zst, or a folder
    path: PathBuf,
    /// Where to listen; may be given several times, port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    listen: Vec<String>,
    /// The path below which the site is served
    #[arg(long, value_name = "PATH", default_value = "/")]
    base_path: String,
    /// How to treat the several addresses of a page: auto, serve or redirect
    #[arg(long, value_name = "HOW", default_value = "auto")]
    slashes: String,
    /// The content security policy: off, report, connected or airgap
    #[arg(long, value_name = "PRESET", default_value = "off")]
    csp: String,
    /// Whether pages get the search box: auto (unless the site brings a search index), always or never
    #[arg(long, value_name = "HOW")]
    search_box: Option<String>,
    /// Serve over TLS with this certificate, followed by its intermediate certificates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Seal and serve again whenever the archive or folder changes
    #[arg(long)]
    watch: bool,
}

/// Interval at which a watched bundle is checked for changes.
const BUNDLE_WATCH_INTERVAL: Duration = Duration::from_secs(1);

impl ServeCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let addresses = self.listen.iter().map(|text| parse_listen(text)).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(|why| CommandFailure::Usage(format!("--listen: {why}")))?;
        let config = context.named_config()?;
        let settings = SiteSettings {
            base_path: parse_base_path(&self.base_path)
                .map_err(|why| CommandFailure::Usage(format!("--base-path: {why}")))?,
            slashes: parse_slashes(&self.slashes).map_err(|why| CommandFailure::Usage(format!("--slashes: {why}")))?,
            security_headers: security_header_settings(
                parse_csp(&self.csp).map_err(|why| CommandFailure::Usage(format!("--csp: {why}")))?,
                None,
                DEFAULT_CSP_BYTES,
                None,
            ),
            ..config.as_ref().map(|config| config.settings.clone()).unwrap_or_default()
        };
        let search = self.search_config(config.as_ref().map(|config| &config.search))?;
        let network = own_program_network(config.as_ref());
        // Loaded before the bundle is read: this takes no time, and its files may be wrong, too.
        let key_pair_files =
            self.tls_cert.zip(self.tls_key).map(|(certificate, key)| KeyPairFiles { certificate, key });
        let tls = key_pair_files.map(|key_pair_files| daemon::load_tls(&key_pair_files)).transpose()?;
        let log = daemon::open_log(config.as_ref().and_then(|config| config.log.as_ref()))?;
        // The bundle is verified before any socket is bound: if it is refused, nothing listens.
        let limits =
            config.as_ref().map_or_else(BundleLimits::default, |config| config.sync_settings.seal_options.limits);
        let seal_options = SealOptions::new(limits);
        let snapshot = BundleSnapshot::read(&self.path);
        let OpenBundle { version, image, warnings, summary } =
            progress::run_with_progress(context, "verifying", |progress| {
                seal_unlinked_with_image(&self.path, &seal_options, progress)
            })?;
        let introduction = format!("docwharf: {}: version {}, {summary}", self.path.display(), version.id.short());
        context.print_warnings(&self.path.display().to_string(), &warnings);
        if let Some(rule_warning) = version.describe_rule_faults() {
            context.print_warnings(&self.path.display().to_string(), &[rule_warning]);
        }
        let listeners = daemon::listeners(daemon::bind(&addresses)?, tls.as_ref());
        let reachable = listeners.iter().filter_map(|listener| listener.address().ok());
        if let Some(warning) = exposure_warning(&settings.access_control.rules, reachable) {
            context.print_note(&format!("docwharf: warning: {warning} in a configuration, and name it with --config"));
        }
        let assistant = config.as_ref().map(|config| config.assistant.clone()).unwrap_or_default();
        let playground = config.as_ref().and_then(|config| config.playground.to_site_settings());
        let rules = config.map(|config| config.rules).unwrap_or_default();
        let addresses = AddressSettings {
            base_path: settings.base_path.clone(),
            slashes: settings.slashes,
            rules: Arc::clone(&rules),
        };
        let site = Site::with_access_log(settings, log.clone());
        site.set_rules(rules);
        site.set_search_settings(Arc::new(search.to_site_settings()));
        site.set_assistant_settings(Some(Arc::new(assistant)));
        site.set_playground_settings(playground);
        let search_index = OnDemandIndex::new(&site, IndexSettings::new(addresses, search.exclude), network);
        let id = version.id;
        site.set_version(version);
        search_index.update_version(id, image);
        if self.watch || site.csp_settings().is_some() {
            let (path, is_watched) = (self.path, self.watch);
            let (site, search_index) = (Arc::clone(&site), search_index.clone());
            // The thread lives as long as the process; it owns nothing that must be released.
            std::thread::spawn(move || {
                serve_policies_without_store(&site, seal_options.threads);
                if is_watched {
                    watch(&path, &seal_options, &site, &search_index, snapshot);
                }
            });
        }
        let result = daemon::serve(site.into(), listeners, || context.print_note(&introduction));
        search_index.stop();
        if let Some(log) = log {
            log.finish();
        }
        result?;
        context.print_note("docwharf: serving has ended");
        Ok(())
    }

    /// Returns the settings of the search: those of the configuration, with the option in place of `search.inject`.
    fn search_config(&self, configured: Option<&SearchConfig>) -> Result<SearchConfig, CommandFailure> {
        let mut search = configured.cloned().unwrap_or_default();
        if let Some(text) = &self.search_box {
            search.inject =
                parse_inject_mode(text).map_err(|why| CommandFailure::Usage(format!("--search-box: {why}")))?;
        }
        Ok(search)
    }
}

/// The sizes and modification times of a bundle. If they change, the bundle must be sealed again.
#[derive(PartialEq, Eq)]
enum BundleSnapshot {
    Folder(Vec<(Vec<u8>, u64, SystemTime)>),
    File(u64, SystemTime),
    Missing,
}

impl BundleSnapshot {
    fn read(path: &Path) -> BundleSnapshot {
        let Ok(metadata) = std::fs::metadata(path) else { return BundleSnapshot::Missing };
        if !metadata.is_dir() {
            return BundleSnapshot::File(metadata.len(), metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        }
        match FolderReader::open(path, &BundleLimits::default()) {
            Ok(folder) => {
                let items = folder.files.into_iter();
                BundleSnapshot::Folder(items.map(|i| (i.path.as_bytes().to_vec(), i.size, i.modified)).collect())
            }
            Err(_) => BundleSnapshot::Missing,
        }
    }
}

/// Seals a changed bundle again, once it has not changed for one interval. If that fails, the error is logged once, and
/// the previous version stays.
fn watch(
    path: &Path,
    seal_options: &SealOptions,
    site: &Site,
    search_index: &OnDemandIndex,
    mut sealed: BundleSnapshot,
) {
    let mut latest = BundleSnapshot::read(path);
    loop {
        std::thread::sleep(BUNDLE_WATCH_INTERVAL);
        site.release_expired_versions();
        let now = BundleSnapshot::read(path);
        let is_unchanged = now == latest;
        latest = now;
        if !is_unchanged || latest == sealed {
            continue;
        }
        match seal_unlinked_with_image(path, seal_options, &SealProgress::default()) {
            Ok(OpenBundle { version, image, warnings, summary }) => {
                for warning in warnings.into_iter().chain(version.describe_rule_faults()) {
                    tracing::warn!("{warning}");
                }
                tracing::info!("{} has changed: version {}, {summary}", path.display(), version.id.short());
                let id = version.id;
                site.set_version(version);
                search_index.update_version(id, image);
                serve_policies_without_store(site, seal_options.threads);
            }
            Err(error) => tracing::error!("{error}; the previous version stays in service"),
        }
        sealed = std::mem::replace(&mut latest, BundleSnapshot::read(path));
    }
}

/// Returns the number of pages and files of a bundle, and its size, for people.
pub(super) fn summarize(verified: &VerifiedBundle) -> String {
    format!(
        "{}, {}, {}",
        format_count(verified.site_layout.pages, "page"),
        format_count(verified.files.len() as u64, "file"),
        format_size(verified.content_len())
    )
}

/// A bundle that was sealed into a file without a name.
pub(super) struct OpenBundle {
    pub(super) version: SealedVersion,
    /// The open image, for other processes to read.
    pub(super) image: File,
    pub(super) warnings: Vec<String>,
    /// The number of its pages and files, and its size, for people.
    summary: String,
}

/// Seals a bundle into a temporary file without a name, and opens it. Returns the version and its warnings.
pub(super) fn seal_unlinked(
    path: &Path,
    seal_options: &SealOptions,
    progress: &SealProgress,
) -> Result<(SealedVersion, Vec<String>), CommandFailure> {
    let bundle = seal_unlinked_with_image(path, seal_options, progress)?;
    Ok((bundle.version, bundle.warnings))
}

/// Seals a bundle like [`seal_unlinked`], and returns the open image as well.
pub(super) fn seal_unlinked_with_image(
    path: &Path,
    seal_options: &SealOptions,
    progress: &SealProgress,
) -> Result<OpenBundle, CommandFailure> {
    let bundle = seal::seal(path, &ImageTarget::Unlinked(std::env::temp_dir()), seal_options, progress)?;
    let SealedBundle { mut verified, image, image_len, .. } = bundle;
    if verified.archive.is_some() {
        let modified = std::fs::metadata(path).and_then(|m| m.modified());
        let modified =
            unix_seconds(modified.map_err(CommandFailure::local(format!("cannot read {}", path.display())))?);
        for (_, entry) in &mut verified.files {
            entry.modified = modified;
        }
    }
    let map_error = || CommandFailure::local("cannot map the sealed site");
    let index = ImageIndex::decode(verified.encode_index(image_len), image_len, verified.id);
    let index = index.map_err(|error| map_error()(std::io::Error::other(error)))?;
    let image_file = image.try_clone().map_err(map_error())?;
    let mapped = mapping::map_image(image).map_err(map_error())?;
    let summary = summarize(&verified);
    let version = SealedVersion::new(verified.id, mapped, index);
    Ok(OpenBundle { version, image: image_file, warnings: verified.warnings, summary })
}
