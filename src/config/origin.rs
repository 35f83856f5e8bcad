//! `origin.toml`: the configuration of an origin. Mistakes of syntax are reported one at a time, with their line;
//! mistakes of meaning all at once.

mod limits;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use url::Url;

use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::units::{parse_duration, parse_size};
use docwharf_base::regular_file;
use docwharf_origin::source::{Crawl, Git, ProjectSource, git};
use docwharf_origin::{
    Domain, MAX_LINK_LIFETIME, MIN_LINK_LIFETIME, Organization, OriginLimits, OriginProject, OriginSettings,
    OriginStorage, PreviewSettings, PublicUrl, SharedResource,
};
use docwharf_serve::key_pair::KeyPairFiles;
use docwharf_site::seal::SealOptions;

use super::problem::{ConfigPlace, ConfigProblem};
use super::value_parsers::parse_listen;
use limits::LimitAlias;

/// The maximum size of the file in bytes.
const MAX_ORIGIN_FILE_BYTES: u64 = 4 << 20;

/// The checked configuration of an origin.
#[derive(Debug)]
pub struct OriginConfig {
    /// The settings of the management API.
    pub settings: OriginSettings,
    /// The addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// The addresses to listen on with TLS, and the files of certificate and key.
    pub tls: Option<(Vec<SocketAddr>, KeyPairFiles)>,
    /// The addresses on which health and metrics are served.
    pub admin: Vec<SocketAddr>,
}

/// A text with its position in the file.
type SpannedText = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenOrigin {
    #[serde(default)]
    server: WrittenServer,
    #[serde(default)]
    tls: Option<WrittenTls>,
    #[serde(default)]
    admin: WrittenAdmin,
    store: Option<WrittenStore>,
    #[serde(default)]
    exports: WrittenExports,
    #[serde(default)]
    previews: WrittenPreviews,
    #[serde(default)]
    analytics: WrittenAnalytics,
    #[serde(default)]
    limits: limits::WrittenLimits,
    #[serde(default)]
    organization: Vec<WrittenOrganization>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct WrittenServer {
    listen: Vec<SpannedText>,
    public_url: Option<SpannedText>,
}

impl Default for WrittenServer {
    fn default() -> Self {
        WrittenServer { listen: vec![Spanned::new(0..0, "127.0.0.1:8090".to_owned())], public_url: None }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenTls {
    cert_file: PathBuf,
    key_file: PathBuf,
    listen: Vec<SpannedText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct WrittenAdmin {
    listen: Vec<SpannedText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenStore {
    path: PathBuf,
    max_bytes: Option<SpannedText>,
    min_free: Option<SpannedText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct WrittenExports {
    workers: Option<Spanned<usize>>,
    keep: Option<Spanned<usize>>,
    link_lifetime: Option<SpannedText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct WrittenPreviews {
    host: Option<SpannedText>,
    workers: Option<Spanned<usize>>,
    sweep: Option<SpannedText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct WrittenAnalytics {
    keep: Option<SpannedText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenOrganization {
    id: SpannedText,
    #[serde(default)]
    project: Vec<WrittenProject>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenProject {
    id: SpannedText,
    domain: SpannedText,
    exports: Option<bool>,
    previews: Option<Spanned<bool>>,
    directory: Option<PathBuf>,
    git: Option<SpannedText>,
    branch: Option<SpannedText>,
    build: Option<SpannedText>,
    output: Option<Spanned<PathBuf>>,
    tools: Option<Vec<PathBuf>>,
    network: Option<bool>,
    allow_untrusted: Option<bool>,
    build_time: Option<SpannedText>,
    build_size: Option<SpannedText>,
    crawl: Option<SpannedText>,
    parallel: Option<Spanned<usize>>,
    robots: Option<bool>,
    most: Option<u64>,
}

/// Reads and checks the configuration file of an origin.
pub fn read(path: &Path, limits: BundleLimits) -> Result<OriginConfig, Vec<ConfigProblem>> {
    let whole = |what: String| vec![ConfigProblem { place: ConfigPlace::File(path.to_owned(), 1, 1), what }];
    let bytes =
        regular_file::read(path, MAX_ORIGIN_FILE_BYTES).map_err(|why| whole(format!("it cannot be read: {why}")))?;
    let text = String::from_utf8(bytes).map_err(|_| whole("it is not UTF-8".to_owned()))?;
    let mut checker = OriginChecker {
        path,
        text: &text,
        base: path.parent().unwrap_or(Path::new("")),
        problems: Vec::new(),
        limits: OriginLimits::default(),
    };
    let written: WrittenOrigin = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![ConfigProblem { place: checker.place(at), what: error.message().replace('\n', ", ") }]
    })?;
    let config = checker.config(written, limits);
    if checker.problems.is_empty() { Ok(config) } else { Err(checker.problems) }
}

struct OriginChecker<'a> {
    path: &'a Path,
    text: &'a str,
    /// The folder to which relative paths in the file refer.
    base: &'a Path,
    problems: Vec<ConfigProblem>,
    /// The limits of organizations and in total, once they are known.
    limits: OriginLimits,
}

impl OriginChecker<'_> {
    /// Converts an offset in bytes into a place.
    fn place(&self, at: usize) -> ConfigPlace {
        ConfigPlace::in_text(self.text, at, self.path)
    }

    fn problem<T>(&mut self, at: &Spanned<T>, what: String) {
        self.problems.push(ConfigProblem { place: self.place(at.span().start), what });
    }

    /// Parses a text, if one was written. A mistake is recorded.
    fn read<T>(
        &mut self,
        key: &str,
        text: Option<&SpannedText>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = text?;
        match parse(text.get_ref()) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(text, format!("{key}: {why}"));
                None
            }
        }
    }

    fn addresses(&mut self, key: &str, texts: &[SpannedText]) -> Vec<SocketAddr> {
        texts.iter().filter_map(|text| self.read(key, Some(text), parse_listen)).collect()
    }

    fn positive(&mut self, key: &str, number: Option<&Spanned<usize>>, default: usize) -> usize {
        match number {
            Some(written) if *written.get_ref() == 0 => {
                self.problem(written, format!("{key}: at least 1 is needed"));
                default
            }
            other => other.map_or(default, |written| *written.get_ref()),
        }
    }

    fn config(&mut self, written: WrittenOrigin, limits: BundleLimits) -> OriginConfig {
        let listen = self.addresses("server.listen", &written.server.listen);
        let admin = self.addresses("admin.listen", &written.admin.listen);
        let tls = written.tls.as_ref().map(|tls| {
            let files =
                KeyPairFiles { certificate: self.base.join(&tls.cert_file), key: self.base.join(&tls.key_file) };
            (self.addresses("tls.listen", &tls.listen), files)
        });
        if listen.is_empty() && tls.as_ref().is_none_or(|(listen, _)| listen.is_empty()) && self.problems.is_empty() {
            let what = "there is nowhere to serve: set server.listen or tls.listen".to_owned();
            self.problems.push(ConfigProblem { place: ConfigPlace::Missing, what });
        }
        let mut settings = OriginSettings::new(SealOptions::new(limits));
        if let Some(store) = &written.store {
            settings.storage = OriginStorage::Folder(self.base.join(&store.path));
            settings.min_free = self.read("store.minFree", store.min_free.as_ref(), parse_size);
        } else {
            let what = "store.path is missing: keys, jobs, bundles and searches need a folder".to_owned();
            self.problems.push(ConfigProblem { place: ConfigPlace::Missing, what });
        }
        let aliases = self.aliases(&written);
        self.limits = self.limits(&written.limits, &aliases);
        settings.limits = self.limits;
        settings.keep = self.positive("exports.keep", written.exports.keep.as_ref(), settings.keep);
        let life = |text: &str| {
            let life = parse_duration(text)?;
            let fits = (MIN_LINK_LIFETIME..=MAX_LINK_LIFETIME).contains(&life);
            if fits { Ok(life) } else { Err(format!("{text:?} is not from 1s to 7d")) }
        };
        let given = self.read("exports.linkLifetime", written.exports.link_lifetime.as_ref(), life);
        settings.link_lifetime = given.unwrap_or(settings.link_lifetime);
        let url = |text: &str| PublicUrl::parse(text).map_err(str::to_owned);
        settings.public_url = self.read("server.publicUrl", written.server.public_url.as_ref(), url);
        settings.previews = self.previews(&written.previews);
        let keep = self.read("analytics.keep", written.analytics.keep.as_ref(), parse_duration);
        settings.search_retention = keep.unwrap_or(settings.search_retention);
        settings.organizations = self.organizations(written.organization);
        OriginConfig { settings, listen, tls, admin }
    }

    /// Reads the keys that are older than `[limits.total]` and set the same limits.
    fn aliases(&mut self, written: &WrittenOrigin) -> Vec<LimitAlias> {
        let numbers = [
            ("exports.workers", SharedResource::Workers, &written.exports.workers),
            ("previews.workers", SharedResource::PreviewBuilds, &written.previews.workers),
        ];
        let mut aliases = Vec::new();
        for (key, resource, written) in numbers {
            let Some(at) = written else { continue };
            let value = self.positive(key, Some(at), 1) as u64;
            aliases.push(LimitAlias { key, resource, value: Spanned::new(at.span(), value) });
        }
        let most = written.store.as_ref().and_then(|store| store.max_bytes.as_ref());
        let (key, resource) = ("store.maxBytes", SharedResource::BundleBytes);
        if let Some((at, value)) = most.zip(self.read(key, most, parse_size)) {
            aliases.push(LimitAlias { key, resource, value: Spanned::new(at.span(), value) });
        }
        aliases
    }

    fn previews(&mut self, written: &WrittenPreviews) -> PreviewSettings {
        let mut settings = PreviewSettings::default();
        let domain = |text: &str| Domain::parse(text).map_err(str::to_owned);
        settings.host = self.read("previews.host", written.host.as_ref(), domain);
        let every = |text: &str| {
            let every = parse_duration(text)?;
            if every >= Duration::from_secs(1) { Ok(every) } else { Err("at least 1s is needed".to_owned()) }
        };
        settings.check_interval =
            self.read("previews.sweep", written.sweep.as_ref(), every).unwrap_or(settings.check_interval);
        settings
    }

    fn organizations(&mut self, written: Vec<WrittenOrganization>) -> Vec<Organization> {
        let (mut names, mut ids, mut domains) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut organizations = Vec::new();
        for organization in written {
            let name = organization.id.get_ref();
            if !is_name(name) {
                self.problem(&organization.id, format!("organization {name:?}: {NAME_SYNTAX}"));
            }
            if !names.insert(name.clone()) {
                self.problem(&organization.id, format!("organization {name:?} is there twice"));
            }
            let mut projects = Vec::new();
            for written in organization.project {
                let (id, domain) = (written.id.clone(), written.domain.clone());
                let name = id.get_ref();
                if !is_name(name) {
                    self.problem(&id, format!("project {name:?}: {NAME_SYNTAX}"));
                }
                if !ids.insert(name.clone()) {
                    self.problem(&id, format!("project {name:?} is there twice; ids count for all organizations"));
                }
                let Some(project) = self.project(written) else { continue };
                if !domains.insert(project.domain.clone()) {
                    let what = format!("project {name:?}: the domain {} is there twice", project.domain);
                    self.problem(&domain, what);
                }
                projects.push(project);
            }
            organizations.push(Organization { id: organization.id.into_inner(), projects });
        }
        if ids.is_empty() {
            let what = "there is nothing to serve: write [[organization]] and [[organization.project]]".to_owned();
            self.problems.push(ConfigProblem { place: ConfigPlace::Missing, what });
        }
        organizations
    }

    fn project(&mut self, written: WrittenProject) -> Option<OriginProject> {
        let key = |name: &str| format!("project {:?}: {name}", written.id.get_ref());
        let domain = |text: &str| Domain::parse(text).map_err(str::to_owned);
        let domain = self.read(&key("domain"), Some(&written.domain), domain);
        let is_git = written.git.is_some();
        let of_git = [
            ("branch", written.branch.is_some()),
            ("build", written.build.is_some()),
            ("output", written.output.is_some()),
            ("tools", written.tools.is_some()),
            ("network", written.network.is_some()),
            ("allowUntrusted", written.allow_untrusted.is_some()),
            ("buildTime", written.build_time.is_some()),
            ("buildSize", written.build_size.is_some()),
        ];
        let of_crawl = [
            ("parallel", written.parallel.is_some()),
            ("robots", written.robots.is_some()),
            ("most", written.most.is_some()),
        ];
        let strays = of_git.iter().filter(|_| !is_git).map(|stray| (stray, "git"));
        let others = of_crawl.iter().filter(|_| written.crawl.is_none()).map(|stray| (stray, "crawl"));
        for ((name, is_there), source) in strays.chain(others) {
            if *is_there {
                self.problem(&written.id, format!("{}: it is for projects with {source} =", key(name)));
            }
        }
        if let Some(previews) = written.previews.as_ref().filter(|previews| *previews.get_ref() && !is_git) {
            self.problem(previews, format!("{}: only a git source has branches to preview", key("previews")));
        }
        let exports = written.exports.unwrap_or(true);
        let previews = written.previews.as_ref().map_or(is_git, |previews| *previews.get_ref());
        let source = match (&written.directory, &written.git, &written.crawl) {
            (Some(path), None, None) => Some(ProjectSource::Directory(self.base.join(path))),
            (None, Some(_), None) => self.git(&written).map(ProjectSource::Git),
            (None, None, Some(_)) => self.crawl(&written).map(ProjectSource::Crawl),
            _ => {
                let what = format!("project {:?} needs one of directory, git and crawl", written.id.get_ref());
                self.problem(&written.id, what);
                None
            }
        };
        Some(OriginProject { id: written.id.into_inner(), domain: domain?, source: source?, exports, previews })
    }

    fn git(&mut self, written: &WrittenProject) -> Option<Git> {
        let key = |name: &str| format!("project {:?}: {name}", written.id.get_ref());
        let branch = |text: &str| {
            let is_one = git::is_branch_name(text);
            if is_one { Ok(text.to_owned()) } else { Err(format!("{text:?} cannot be a branch")) }
        };
        let branch = match &written.branch {
            Some(_) => self.read(&key("branch"), written.branch.as_ref(), branch),
            None => Some("main".to_owned()),
        };
        let time = self.read(&key("buildTime"), written.build_time.as_ref(), parse_duration);
        let size = self.read(&key("buildSize"), written.build_size.as_ref(), parse_size);
        if let Some(output) = written.output.as_ref().filter(|path| path.get_ref().is_absolute()) {
            self.problem(output, format!("{}: it is a folder of the checkout, such as \"book\"", key("output")));
        }
        let repository = written.git.clone()?.into_inner();
        // A path is relative to the configuration file; a URL or a host with a path is used unchanged.
        let is_local = !repository.contains(':');
        let repository = if is_local { self.base.join(&repository).to_string_lossy().into_owned() } else { repository };
        Some(Git {
            repository,
            branch: branch?,
            build: written.build.as_ref().map(|build| build.get_ref().clone()),
            output: written.output.as_ref().map(|output| output.get_ref().clone()),
            tools: written.tools.iter().flatten().map(|path| self.base.join(path)).collect(),
            network: written.network.unwrap_or(false),
            allow_untrusted: written.allow_untrusted.unwrap_or(false),
            time: time.unwrap_or(Duration::from_mins(15)),
            size: size.unwrap_or(4 << 30),
            memory: self.limits.organization[SharedResource::BuildMemory],
            processes: self.limits.organization[SharedResource::BuildProcesses],
        })
    }

    fn crawl(&mut self, written: &WrittenProject) -> Option<Crawl> {
        let key = |name: &str| format!("project {:?}: {name}", written.id.get_ref());
        let url = |text: &str| {
            let url = Url::parse(text).map_err(|why| format!("{why}; write it like http://127.0.0.1:3000/"))?;
            let is_plain = url.username().is_empty() && url.password().is_none();
            match url.scheme() {
                "http" | "https" if url.has_host() && is_plain => Ok(url),
                "http" | "https" => Err("it has no user name and no password".to_owned()),
                other => Err(format!("{other} is not http or https")),
            }
        };
        let start = self.read(&key("crawl"), written.crawl.as_ref(), url)?;
        let parallel = self.positive(&key("parallel"), written.parallel.as_ref(), 8);
        Some(Crawl {
            start,
            parallel,
            robots: written.robots.unwrap_or(true),
            most: written.most.unwrap_or(50_000),
            time: self.limits.organization.time(SharedResource::CrawlTime),
        })
    }
}

const NAME_SYNTAX: &str = "a name has 1 to 64 letters, digits, - and _";

/// Returns whether a name is safe in a URL, in the name of a folder and in a log.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
