//! All servers of a run, each started once and left running.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::http;
use crate::common::place::{Place, local, version_of};
use crate::common::process::{self, How, Server};
use crate::options::Options;
use crate::ours::{self, Ours};
use crate::peers::{Launch, PEERS, Peer};
use crate::site::Site;

/// A server, set up, that can be started as often as one likes.
pub(crate) struct Contender {
    pub name: &'static str,
    pub version: String,
    pub place: Place,
    pub launch: Launch,
    pub ours: Option<Ours>,
}

/// Enough for a store that is opened on a slow disk.
const START: Duration = Duration::from_secs(20);

impl Contender {
    fn spawn(&self, how: How) -> Result<Server, String> {
        process::spawn(&self.launch.command, &self.place.folder, &self.launch.variables, how)
    }

    /// Started, and answering with the front page.
    pub(crate) fn start(&self, site: &Site) -> Result<Server, String> {
        let mut server = self.spawn(How::Bound)?;
        self.wait(&mut server, site)?;
        Ok(server)
    }

    /// From just before it is started to the whole front page.
    pub(crate) fn time_to_start(&self, site: &Site) -> Result<Duration, String> {
        let begun = Instant::now();
        let mut server = self.spawn(How::Bare)?;
        self.wait(&mut server, site)?;
        Ok(begun.elapsed())
    }

    /// Asks again and again, without a pause.
    fn wait(&self, server: &mut Server, site: &Site) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            match http::once(local(self.place.port), "/", &[]) {
                Ok(answer) if answer.status == 200 && answer.body == site.body("/") => return Ok(()),
                Ok(answer) if answer.status != 503 => return Err(self.wrong(&format!("answers {}", answer.status))),
                _ if !server.is_running() => return Err(self.wrong("has ended")),
                _ if begun.elapsed() > START => return Err(self.wrong("does not answer")),
                _ => {}
            }
        }
    }

    fn wrong(&self, what: &str) -> String {
        let log = std::fs::read_to_string(self.place.folder.join("log")).unwrap_or_default();
        format!("{} {what}; its output: {}", self.name, log.trim())
    }
}

fn peer(peer: &Peer, site: &Site, scratch: &Path) -> Result<Contender, String> {
    let version = peer.version()?;
    let place = Place::new(scratch.join(peer.name), &site.copy)?;
    let launch = peer.set_up(&place)?;
    Ok(Contender { name: peer.name, version, place, launch, ours: None })
}

/// docwharf with a store into which `archives` have been imported, the last of which is active.
pub(crate) fn docwharf(
    (name, program): (&'static str, &Path),
    site: &Site,
    scratch: &Path,
    archives: &[(&Path, &str)],
) -> Result<Contender, String> {
    let version = version_of(program, &["--version"]);
    let version = version.ok_or_else(|| format!("cannot start {}", program.display()))?;
    let place = Place::new(scratch.join(format!("{name}-{}", archives.len())), &site.copy)?;
    let ours = Ours::set_up(program, &place)?;
    for (archive, label) in archives {
        ours.verb(&["import", &archive.display().to_string(), "--label", label])?;
    }
    let launch = ours.launch(&place);
    Ok(Contender { name, version, place, launch, ours: Some(ours) })
}

/// Python's pages take a minute and a half of half a core.
const CODED: Duration = Duration::from_mins(8);

/// docwharf's denser codings are made beforehand, as the peers' files are compressed beforehand: made while it is another's
/// turn they would be that one's burden.
fn make_codings(docwharf: &Contender, site: &Site) -> Result<(), String> {
    let _server = docwharf.start(site)?;
    let derived = docwharf.place.folder.join("store/derived");
    let begun = Instant::now();
    let is_made = || {
        let versions = std::fs::read_dir(&derived).into_iter().flatten().flatten();
        versions.into_iter().any(|version| ["brotli", "zstd"].iter().all(|kind| version.path().join(kind).exists()))
    };
    while !is_made() {
        if begun.elapsed() > CODED {
            return Err(docwharf.wrong("has not made its denser codings"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// docwharf first, then an earlier one if it is asked for, then the peers.
pub(crate) fn set_up(options: &Options, site: &Site, scratch: &Path) -> Result<Vec<Contender>, String> {
    let mut field = vec![docwharf((ours::NAME, &options.program), site, scratch, &[(&site.zip, "one")])?];
    if let Some(before) = &options.before {
        field.push(docwharf((ours::BEFORE, before), site, scratch, &[(&site.zip, "one")])?);
    }
    for docwharf in &field {
        make_codings(docwharf, site)?;
    }
    for chosen in PEERS.iter().filter(|peer| options.peers.iter().any(|name| name == peer.name)) {
        field.push(peer(chosen, site, scratch)?);
    }
    Ok(field)
}
