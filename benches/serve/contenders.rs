//! The servers of a benchmark: docwharf and its peers.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::http;
use crate::common::process::{self, Server, StartMode};
use crate::common::server_setup::{ServerSetup, local, version_of};
use crate::docwharf::{self, AddedPart, DocwharfSetup};
use crate::options::Options;
use crate::peers::{LaunchCommand, PEERS, Peer};
use crate::site::Site;

/// A server with its configuration. It can be started many times.
pub(crate) struct Contender {
    pub name: &'static str,
    pub version: String,
    pub setup: ServerSetup,
    pub launch: LaunchCommand,
    pub docwharf: Option<DocwharfSetup>,
}

/// Enough for a store that is opened on a slow disk.
const START_TIMEOUT: Duration = Duration::from_secs(20);

impl Contender {
    fn spawn(&self, mode: StartMode) -> Result<Server, String> {
        process::spawn(&self.launch.command, &self.setup.folder, &self.launch.variables, mode)
    }

    /// Starts the server and waits for its front page.
    pub(crate) fn start(&self, site: &Site) -> Result<Server, String> {
        let mut server = self.spawn(StartMode::EndsWithParent)?;
        self.wait_for_front_page(&mut server, site)?;
        Ok(server)
    }

    /// The time from just before the start to the complete front page.
    pub(crate) fn time_to_start(&self, site: &Site) -> Result<Duration, String> {
        let started = Instant::now();
        let mut server = self.spawn(StartMode::NoWrapper)?;
        self.wait_for_front_page(&mut server, site)?;
        Ok(started.elapsed())
    }

    /// Requests the front page again and again, without a pause.
    fn wait_for_front_page(&self, server: &mut Server, site: &Site) -> Result<(), String> {
        let started = Instant::now();
        loop {
            match http::get_once(local(self.setup.port), "/", &[]) {
                Ok(response) if response.status == 200 && site.has_body("/", &response.body) => return Ok(()),
                Ok(response) if response.status != 503 => {
                    return Err(self.error_with_output(&format!("answers {}", response.status)));
                }
                _ if !server.is_running() => return Err(self.error_with_output("has ended")),
                _ if started.elapsed() > START_TIMEOUT => return Err(self.error_with_output("does not answer")),
                _ => {}
            }
        }
    }

    fn error_with_output(&self, problem: &str) -> String {
        let log = std::fs::read_to_string(self.setup.folder.join("log")).unwrap_or_default();
        format!("{} {problem}; its output: {}", self.name, log.trim())
    }
}

fn peer_contender(peer: &Peer, site: &Site, scratch: &Path) -> Result<Contender, String> {
    let version = peer.version()?;
    let setup = ServerSetup::new(scratch.join(peer.name), &site.copy)?;
    let launch = peer.set_up(&setup)?;
    Ok(Contender { name: peer.name, version, setup, launch, docwharf: None })
}

/// docwharf with the imported `archives` in its store. The last one is active.
pub(crate) fn docwharf_contender(
    (name, program): (&'static str, &Path),
    site: &Site,
    scratch: &Path,
    archives: &[(&Path, &str)],
) -> Result<Contender, String> {
    let version = version_of(program, &["--version"]);
    let version = version.ok_or_else(|| format!("cannot start {}", program.display()))?;
    let setup = ServerSetup::new(scratch.join(format!("{name}-{}", archives.len())), &site.copy)?;
    let docwharf = DocwharfSetup::set_up(program, &setup, AddedPart::of(name))?;
    for (archive, label) in archives {
        docwharf.run_command(&["import", &archive.display().to_string(), "--label", label])?;
    }
    let launch = docwharf.launch(&setup);
    Ok(Contender { name, version, setup, launch, docwharf: Some(docwharf) })
}

/// Enough for the Python documentation, which takes a minute and a half at half a core.
const ENCODING_TIMEOUT: Duration = Duration::from_mins(8);

/// Makes docwharf's Brotli and Zstandard forms before the rounds, as the peers' files are compressed before. Otherwise
/// the encoding would slow the server whose turn it is.
fn make_codings(docwharf: &Contender, site: &Site) -> Result<(), String> {
    let _server = docwharf.start(site)?;
    let derived = docwharf.setup.folder.join("store/derived");
    let started = Instant::now();
    let is_done = || {
        let versions = std::fs::read_dir(&derived).into_iter().flatten().flatten();
        versions.into_iter().any(|version| ["brotli", "zstd"].iter().all(|kind| version.path().join(kind).exists()))
    };
    while !is_done() {
        if started.elapsed() > ENCODING_TIMEOUT {
            return Err(docwharf.error_with_output("has not made its Brotli and Zstandard forms"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Checks that the hot page ends with the tag, which the checks of responses only allow.
fn check_tag(tagged: &Contender, site: &Site) -> Result<(), String> {
    let _server = tagged.start(site)?;
    let response = http::get_once(local(tagged.setup.port), &site.hot.path, &[]);
    let response = response.map_err(|error| format!("{}: {error}", tagged.name))?;
    if response.body.ends_with(docwharf::TAG) { Ok(()) } else { Err(format!("{}: no tag", tagged.name)) }
}

/// Sets up docwharf, then an earlier docwharf if `--before` is given, and docwharf with a further part if `--tag`,
/// `--recording` or `--assistants` is, then the peers.
pub(crate) fn set_up(options: &Options, site: &Site, scratch: &Path) -> Result<Vec<Contender>, String> {
    let mut contenders =
        vec![docwharf_contender((docwharf::NAME, &options.program), site, scratch, &[(&site.zip, "one")])?];
    if let Some(earlier) = &options.before {
        contenders.push(docwharf_contender((docwharf::EARLIER, earlier), site, scratch, &[(&site.zip, "one")])?);
    }
    for name in options.added_parts.iter().copied() {
        contenders.push(docwharf_contender((name, &options.program), site, scratch, &[(&site.zip, "one")])?);
    }
    for docwharf in &contenders {
        make_codings(docwharf, site)?;
    }
    for tagged in contenders.iter().filter(|contender| contender.name == docwharf::WITH_TAG) {
        check_tag(tagged, site)?;
    }
    for peer in PEERS.iter().filter(|peer| options.peers.iter().any(|name| name == peer.name)) {
        contenders.push(peer_contender(peer, site, scratch)?);
    }
    Ok(contenders)
}
