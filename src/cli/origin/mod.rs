//! `docwharf origin`: serves the management API for the operator's own sites.

mod configured;
mod import;
mod import_analytics;
mod key;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::origin::OriginConfig;
use crate::config::value_parsers::parse_listen;
use crate::daemon::{self, OriginHangup, PreviewIndexes};
use docwharf_base::child_network::ChildNetwork;
use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::model::units::{format_count, parse_duration};
use docwharf_origin::source::ProjectSource;
use docwharf_origin::{
    self, Domain, MAX_LINK_LIFETIME, MIN_LINK_LIFETIME, Organization, OriginProject, OriginSettings, PublicUrl,
};
use docwharf_site::seal::SealOptions;

use super::context::CommandContext;
use super::failure::CommandFailure;
pub(super) use configured::read_origin_config;

/// The organization of the sites that are named by flags.
const LOCAL_ORGANIZATION: &str = "local";
/// Number of finished jobs that an origin without a state folder remembers.
const MAX_KEPT_JOBS: usize = 32;

/// Serve the management API: make bundles of sites and provide links to them.
///
/// With --config FILE it serves the organizations and projects of that file and stores keys, jobs, bundles, previews
/// and searches in its folder; origin.example.toml shows every key. With --site and --key-file it serves folders and
/// archives, and stores nothing.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct OriginArgs {
    #[command(subcommand)]
    command: Option<OriginCommand>,
    #[command(flatten)]
    serve: OriginServeArgs,
}

#[derive(Debug, Subcommand)]
enum OriginCommand {
    /// Create, list and revoke keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Check the configuration of an origin
    Check(OriginCheckCommand),
    /// Import searches from a CSV file
    ImportSearches(import::ImportSearchesCommand),
    /// Import what a host has recorded, from a file that it exported
    ImportAnalytics(import_analytics::OriginImportAnalyticsCommand),
}

#[derive(Debug, Args)]
struct OriginCheckCommand {}

impl OriginCheckCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = read_origin_config(context)?;
        let organizations = &config.settings.organizations;
        let projects = organizations.iter().map(|organization| organization.projects.len()).sum::<usize>();
        let json = json!({ "schemaVersion": 1, "organizations": organizations.len(), "projects": projects });
        let text = format!(
            "{}, {}\n",
            format_count(organizations.len() as u64, "organization"),
            format_count(projects as u64, "project")
        );
        context.print_result(&json, &text)
    }
}

#[derive(Debug, Args)]
struct OriginServeArgs {
    /// A domain and its folder or archive; may be given several times
    #[arg(long, value_name = "DOMAIN=PATH")]
    site: Vec<String>,
    /// Where to listen; may be given several times, port 0 is any free one [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// The file with the API key, which every API call must contain; read again when it changes
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How long a link to a bundle works, 1s to 7d [default: 15m]
    #[arg(long, value_name = "DURATION")]
    link_lifetime: Option<String>,
    /// The URL that links begin with; default: the host of the request
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
}

impl OriginArgs {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self.command {
            Some(OriginCommand::Key(command)) => command.run(context),
            Some(OriginCommand::Check(command)) => command.run(context),
            Some(OriginCommand::ImportSearches(command)) => command.run(context),
            Some(OriginCommand::ImportAnalytics(command)) => command.run(context),
            None => self.serve.run(context),
        }
    }
}

impl OriginServeArgs {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let hangup = if self.site.is_empty() { OriginHangup::Warn } else { OriginHangup::Stop };
        let mut config = match (self.site.is_empty(), &context.global.config) {
            (false, Some(_)) => {
                return Err(CommandFailure::Usage(
                    "--site and --config exclude each other: sites are in the file".to_owned(),
                ));
            }
            (true, Some(_)) => self.config_from_file(context)?,
            _ => self.config_from_flags(context)?,
        };
        let tls = config.tls.as_ref().map(|(_, files)| daemon::load_tls(files)).transpose()?;
        // Bound before any task begins: a start that fails must not have taken a waiting job.
        let mut listeners = daemon::listeners(daemon::bind(&config.listen)?, None);
        if let (Some((addresses, _)), Some(tls)) = (&config.tls, &tls) {
            listeners.extend(daemon::listeners(daemon::bind(addresses)?, Some(tls)));
        }
        let admin = daemon::bind(&config.admin)?;
        if config.searches_previews {
            let network = ChildNetwork::for_own_program(&config.outbound_policy);
            config.settings.preview_settings.search = Some(Arc::new(PreviewIndexes::new(network)));
        }
        let origin = docwharf_origin::OriginServer::new(config.settings)?;
        Ok(daemon::origin(&origin, listeners, admin, tls.zip(config.tls.map(|(_, files)| files)), hangup)?)
    }

    fn config_from_file(self, context: &CommandContext) -> Result<OriginConfig, CommandFailure> {
        let site_flags = [
            ("--key-file", self.key_file.is_some()),
            ("--link-lifetime", self.link_lifetime.is_some()),
            ("--public-url", self.public_url.is_some()),
        ];
        if let Some((name, _)) = site_flags.iter().find(|(_, is_set)| *is_set) {
            return Err(CommandFailure::Usage(format!("{name} is for --site; with --config, set it in the file")));
        }
        let mut config = read_origin_config(context)?;
        if !self.listen.is_empty() {
            config.listen = self.addresses()?;
        }
        Ok(config)
    }

    fn addresses(&self) -> Result<Vec<std::net::SocketAddr>, CommandFailure> {
        let default = ["127.0.0.1:8090".to_owned()];
        let texts = if self.listen.is_empty() { &default[..] } else { &self.listen };
        let addresses = texts.iter().map(|text| parse_listen(text)).collect::<Result<Vec<_>, _>>();
        addresses.map_err(|why| CommandFailure::Usage(format!("--listen: {why}")))
    }

    fn config_from_flags(self, context: &CommandContext) -> Result<OriginConfig, CommandFailure> {
        let listen = self.addresses()?;
        let mut settings = OriginSettings::new(SealOptions::new(context.limits()?));
        if self.site.is_empty() {
            let why = "there is nothing to serve: give --site DOMAIN=PATH or --config origin.toml";
            return Err(CommandFailure::Usage(why.to_owned()));
        }
        let Some(key) = self.key_file else {
            return Err(CommandFailure::Usage(
                "--key-file FILE is needed: it contains the key for all calls".to_owned(),
            ));
        };
        settings.key_file = Some((LOCAL_ORGANIZATION.to_owned(), key));
        settings.max_jobs_per_project = MAX_KEPT_JOBS;
        let projects = parse_sites(&self.site).map_err(|why| CommandFailure::Usage(format!("--site: {why}")))?;
        settings.organizations = vec![Organization { id: LOCAL_ORGANIZATION.to_owned(), projects }];
        let parse_lifetime = |text: &String| {
            let lifetime = parse_duration(text)?;
            let fits = (MIN_LINK_LIFETIME..=MAX_LINK_LIFETIME).contains(&lifetime);
            fits.then_some(lifetime).ok_or_else(|| format!("{text:?} is not from 1s to 7d"))
        };
        let link_lifetime = self.link_lifetime.as_ref().map(parse_lifetime).transpose();
        let link_lifetime = link_lifetime.map_err(|why| CommandFailure::Usage(format!("--link-lifetime: {why}")))?;
        settings.link_lifetime = link_lifetime.unwrap_or(settings.link_lifetime);
        let url = self.public_url.as_deref().map(PublicUrl::parse).transpose();
        settings.public_url = url.map_err(|why| CommandFailure::Usage(format!("--public-url: {why}")))?;
        Ok(OriginConfig {
            settings,
            listen,
            tls: None,
            admin: Vec::new(),
            searches_previews: false,
            outbound_policy: OutboundPolicy::Any,
            warnings: Vec::new(),
        })
    }
}

/// Parses `DOMAIN=PATH` into a project for each site. The domain is the project's id.
fn parse_sites(texts: &[String]) -> Result<Vec<OriginProject>, String> {
    let mut projects: Vec<OriginProject> = Vec::new();
    for text in texts {
        let (domain, path) = text
            .split_once('=')
            .filter(|(_, path)| !path.is_empty())
            .ok_or_else(|| format!("{text:?} is not DOMAIN=PATH; write it like docs.example.com=path/to/site"))?;
        let domain = Domain::parse(domain).map_err(|why| format!("{domain:?}: {why}"))?;
        if projects.iter().any(|project| project.domain == domain) {
            return Err(format!("{domain} is named twice; the second time with {path}"));
        }
        let (id, source) = (domain.to_string(), ProjectSource::FolderOrArchive(PathBuf::from(path)));
        projects.push(OriginProject { id, domain, source, allows_exports: true, allows_previews: false });
    }
    Ok(projects)
}
