//! `[[organization]]` and `[[organization.project]]`: the sites of an origin and where they come from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_origin::source::{CrawlSource, GitSource, ProjectSource, crawl, git};
use docwharf_origin::{Domain, Organization, OriginLimits, OriginProject, SharedResource};

use crate::config::checker::{ValueChecker, WrittenValues};
use crate::config::key_table::ValueType;
use crate::config::problem::{ConfigPlace, ConfigProblem};
use crate::config::written_value::{TableRow, WrittenValue};

const NAME_SYNTAX: &str = "a name has 1 to 64 letters, digits, - and _";
const DEFAULT_BRANCH: &str = "main";
const DEFAULT_BUILD_TIME: Duration = Duration::from_mins(15);
const DEFAULT_BUILD_BYTES: u64 = 4 << 30;
/// The default number of requests of a crawl at a time.
const DEFAULT_PARALLEL: usize = 8;
/// The default number of pages and assets of a crawl.
const DEFAULT_MAX_FILES: u64 = 50_000;
/// The keys that only projects with `git` may have.
const GIT_KEYS: [&str; 8] =
    ["branch", "build", "output", "tools", "network", "allowUntrusted", "buildTime", "buildSize"];
/// The keys that only projects with `crawl` may have.
const CRAWL_KEYS: [&str; 3] = ["parallel", "robots", "most"];

/// Checks the organizations. `base` is the folder to which relative paths in the file refer.
pub(super) fn check_organizations(
    checker: &mut ValueChecker<'_>,
    base: &Path,
    limits: &OriginLimits,
    outbound_policy: &OutboundPolicy,
) -> Vec<Organization> {
    let mut organizations = OrganizationChecker::new(base, limits, outbound_policy);
    let checked = checker.raw.rows("organization").filter_map(|row| organizations.organization(row)).collect();
    if organizations.projects.is_empty() && organizations.problems.is_empty() {
        let message = "there is nothing to serve: write [[organization]] and [[organization.project]]".to_owned();
        organizations.problems.push(ConfigProblem { place: ConfigPlace::Missing, message });
    }
    checker.problems.append(&mut organizations.problems);
    checked
}

/// Checks organizations and projects, which must not have a name or a domain twice.
struct OrganizationChecker<'a> {
    base: &'a Path,
    limits: &'a OriginLimits,
    outbound_policy: &'a OutboundPolicy,
    names: BTreeSet<String>,
    projects: BTreeSet<String>,
    domains: BTreeSet<Domain>,
    problems: Vec<ConfigProblem>,
}

impl<'a> OrganizationChecker<'a> {
    fn new(base: &'a Path, limits: &'a OriginLimits, outbound_policy: &'a OutboundPolicy) -> OrganizationChecker<'a> {
        OrganizationChecker {
            base,
            limits,
            outbound_policy,
            names: BTreeSet::new(),
            projects: BTreeSet::new(),
            domains: BTreeSet::new(),
            problems: Vec::new(),
        }
    }

    fn problem(&mut self, place: &ConfigPlace, message: String) {
        self.problems.push(ConfigProblem { place: place.clone(), message });
    }

    /// Reads the required `id` of a row.
    fn id(&mut self, row: &TableRow, kind: &str) -> Option<(String, ConfigPlace)> {
        let Some(written) = row.get("id") else {
            self.problem(&row.place, format!("{}.id is missing", row.list.name));
            return None;
        };
        let Some(id) = written.value.as_text() else {
            self.problem(&written.place, format!("{}.id: a text in quotes is needed", row.list.name));
            return None;
        };
        if !is_name(id) {
            self.problem(&written.place, format!("{kind} {id:?}: {NAME_SYNTAX}"));
        }
        Some((id.to_owned(), written.place.clone()))
    }

    fn organization(&mut self, row: &TableRow) -> Option<Organization> {
        let id = self.id(row, "organization");
        if let Some((id, place)) = &id
            && !self.names.insert(id.clone())
        {
            self.problem(place, format!("organization {id:?} is defined twice"));
        }
        let projects = row.rows.iter().filter_map(|row| self.project(row)).collect();
        Some(Organization { id: id?.0, projects })
    }

    fn project(&mut self, row: &TableRow) -> Option<OriginProject> {
        let (id, place) = self.id(row, "project")?;
        if !self.projects.insert(id.clone()) {
            self.problem(&place, format!("project {id:?} is defined twice; ids must be unique in all organizations"));
        }
        let values = ProjectValues { row, id: &id };
        let mut checker = ProjectChecker {
            values: ValueChecker { raw: &values, problems: Vec::new() },
            id_place: &place,
            base: self.base,
            limits: self.limits,
            outbound_policy: self.outbound_policy,
        };
        let project = checker.project();
        self.problems.append(&mut checker.values.problems);
        let project = project?;
        if !self.domains.insert(project.domain.clone()) {
            let place = row.get("domain").map_or(&row.place, |written| &written.place);
            self.problem(place, format!("project {id:?}: the domain {} is used twice", project.domain));
        }
        Some(project)
    }
}

/// The values of one project, which messages name by its id.
struct ProjectValues<'a> {
    row: &'a TableRow,
    id: &'a str,
}

impl WrittenValues for ProjectValues<'_> {
    fn written(&self, key: &str) -> Option<&WrittenValue> {
        self.row.get(key)
    }

    fn value_type(&self, key: &str) -> Option<ValueType> {
        self.row.list.find_key(key).map(|key| key.value_type)
    }

    fn message_name(&self, key: &str) -> String {
        format!("project {:?}: {key}", self.id)
    }
}

/// Checks one project.
struct ProjectChecker<'a> {
    values: ValueChecker<'a, ProjectValues<'a>>,
    id_place: &'a ConfigPlace,
    base: &'a Path,
    limits: &'a OriginLimits,
    outbound_policy: &'a OutboundPolicy,
}

impl ProjectChecker<'_> {
    fn has(&self, key: &str) -> bool {
        self.values.raw.row.get(key).is_some()
    }

    fn problem(&mut self, message: String) {
        self.values.problems.push(ConfigProblem { place: self.id_place.clone(), message });
    }

    fn project(&mut self) -> Option<OriginProject> {
        let values = self.values.raw;
        if !self.has("domain") {
            self.problem(format!("{} is missing", values.message_name("domain")));
        }
        let domain = self.values.parsed("domain", |text| Domain::parse(text).map_err(str::to_owned));
        let is_git = self.has("git");
        let source_keys = GIT_KEYS.map(|key| (key, "git")).into_iter().chain(CRAWL_KEYS.map(|key| (key, "crawl")));
        for (key, source) in source_keys {
            if self.has(key) && !self.has(source) {
                self.problem(format!("{}: it is for projects with {source} =", values.message_name(key)));
            }
        }
        let allows_exports = self.values.flag("exports").unwrap_or(true);
        let allows_previews = self.values.flag("previews");
        if allows_previews == Some(true) && !is_git {
            let message = "only a git source has branches to preview".to_owned();
            self.values.value::<()>("previews", |_| Err(message));
        }
        let source = match ["directory", "git", "crawl"].map(|key| self.has(key)) {
            [true, false, false] => self.path("directory").map(ProjectSource::FolderOrArchive),
            [false, true, false] => self.git().map(ProjectSource::Git),
            [false, false, true] => self.crawl().map(ProjectSource::Crawl),
            _ => {
                self.problem(format!("project {:?} needs one of directory, git and crawl", values.id));
                None
            }
        };
        let allows_previews = allows_previews.unwrap_or(is_git);
        Some(OriginProject {
            id: values.id.to_owned(),
            domain: domain?,
            source: source?,
            allows_exports,
            allows_previews,
        })
    }

    fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.values.text(key).map(|path| self.base.join(path))
    }

    fn git(&mut self) -> Option<GitSource> {
        let branch = self.values.parsed("branch", |text| {
            let is_valid = git::is_branch_name(text);
            if is_valid { Ok(text.to_owned()) } else { Err(format!("{text:?} cannot be a branch")) }
        });
        let output = self.values.parsed("output", |text| {
            let is_relative = !Path::new(text).is_absolute();
            let path = is_relative.then(|| PathBuf::from(text));
            path.ok_or_else(|| "it is a folder of the checkout, such as \"book\"".to_owned())
        });
        let (time, size) = (self.values.duration("buildTime"), self.values.size("buildSize"));
        let (network, allow_untrusted) = (self.values.flag("network"), self.values.flag("allowUntrusted"));
        let (build, tools) = (self.values.text("build"), self.values.texts("tools").unwrap_or_default());
        let repository = self.values.text("git")?;
        // A path is relative to the configuration file; a URL or a host with a path is used unchanged.
        let is_local = !repository.contains(':');
        let repository = if is_local { self.base.join(&repository).to_string_lossy().into_owned() } else { repository };
        let problem = git::find_outbound_problem(&repository, self.outbound_policy);
        self.values.value("git", |_| problem.map_or(Ok(()), Err));
        if network == Some(true) && self.outbound_policy.is_air_gapped() {
            let message = "builds of an air-gapped deployment have no network; remove the key".to_owned();
            self.values.value::<()>("network", |_| Err(message));
        }
        Some(GitSource {
            repository,
            branch: branch.unwrap_or_else(|| DEFAULT_BRANCH.to_owned()),
            build,
            output,
            tools: tools.iter().map(|path| self.base.join(path)).collect(),
            allows_network: network.unwrap_or(false),
            allows_no_sandbox: allow_untrusted.unwrap_or(false),
            max_duration: time.unwrap_or(DEFAULT_BUILD_TIME),
            max_bytes: size.unwrap_or(DEFAULT_BUILD_BYTES),
            max_memory_bytes: self.limits.organization[SharedResource::BuildMemory],
            max_processes: self.limits.organization[SharedResource::BuildProcesses],
            outbound_policy: self.outbound_policy.clone(),
        })
    }

    fn crawl(&mut self) -> Option<CrawlSource> {
        let start = self.values.parsed("crawl", |text| {
            let start = parse_start(text)?;
            let problem = crawl::find_outbound_problem(&start, self.outbound_policy);
            problem.map_or(Ok(start), Err)
        });
        let parallel = self.values.number("parallel").map_or(DEFAULT_PARALLEL, |number| number as usize);
        let (robots, most) = (self.values.flag("robots"), self.values.number("most"));
        Some(CrawlSource {
            start: start?,
            max_concurrent_requests: parallel,
            obeys_robots: robots.unwrap_or(true),
            max_files: most.unwrap_or(DEFAULT_MAX_FILES),
            max_duration: self.limits.organization.time(SharedResource::CrawlTime),
            outbound_policy: self.outbound_policy.clone(),
        })
    }
}

/// Parses the address of the start page of a crawl.
fn parse_start(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|why| format!("{why}; write it like http://127.0.0.1:3000/"))?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    match url.scheme() {
        "http" | "https" if url.has_host() && is_plain => Ok(url),
        "http" | "https" => Err("it has no user name and no password".to_owned()),
        other => Err(format!("{other} is not http or https")),
    }
}

/// Returns whether a name is safe in a URL, in the name of a folder and in a log.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
