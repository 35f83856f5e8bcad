//! `docwharf demo`: an origin with a site about docwharf, and an agent that fetches it through the API, in one process
//! and one temporary folder.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use tokio::sync::watch;

use crate::config::inputs::ConfigInputs;
use crate::config::value_parsers::parse_listen;
use crate::daemon::{self, RunHangup, RunParameters};
use docwharf_base::runtime;
use docwharf_origin::source::ProjectSource;
use docwharf_origin::{self, Domain, Organization, OriginProject, OriginServer, OriginSettings};
use docwharf_site::seal::SealOptions;

use super::context::{CommandContext, STORE_LOCK_TIMEOUT};
use super::exit::exit_code_and_message;
use super::failure::CommandFailure;

/// The domain of the demonstration's site.
const DEMO_DOMAIN: &str = "docs.example.com";

/// Includes files of `demo/site/` with their names.
macro_rules! site {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../demo/site/", $name)))),*]
    };
}

/// The demonstration's site: path and content of each file.
const DEMO_SITE_FILES: &[(&str, &[u8])] = site![
    "404.html",
    "assets/berth.svg",
    "assets/flow-tall.svg",
    "assets/flow.svg",
    "assets/mark.svg",
    "assets/style.css",
    "favicon.ico",
    "guides/air-gap.html",
    "guides/container.html",
    "guides/how-it-works.html",
    "guides/try-it.html",
    "guides/vm.html",
    "index.html",
    "reference/api.html",
    "reference/commands.html",
    "reference/configuration.html",
    "reference/exit-codes.html",
    "reference/monitoring.html",
    "robots.txt",
    "sitemap.xml",
];

#[derive(Debug, Args)]
pub(super) struct DemoCommand {
    /// Where the site is served; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// Keep the temporary folder afterwards
    #[arg(long)]
    keep: bool,
}

impl DemoCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let listen = parse_listen(&self.listen).map_err(|why| CommandFailure::Usage(format!("--listen: {why}")))?;
        let temporary_folder = tempfile::Builder::new().prefix("docwharf-demo-").tempdir();
        let mut folder = temporary_folder.map_err(CommandFailure::local("cannot create a temporary folder"))?;
        folder.disable_cleanup(self.keep);
        let dir = folder.path().to_owned();
        write_demo_folder(&dir)
            .map_err(CommandFailure::local(format!("cannot write the demonstration into {}", dir.display())))?;

        let mut settings = OriginSettings::new(SealOptions::new(context.limits()?));
        settings.key_file = Some((DEMO_DOMAIN.to_owned(), dir.join("key")));
        let project = OriginProject {
            id: DEMO_DOMAIN.to_owned(),
            domain: Domain::parse(DEMO_DOMAIN).map_err(|why| CommandFailure::Usage(why.to_owned()))?,
            source: ProjectSource::FolderOrArchive(dir.join("site")),
            allows_exports: true,
            allows_previews: false,
        };
        settings.organizations = vec![Organization { id: DEMO_DOMAIN.to_owned(), projects: vec![project] }];
        let origin = OriginServer::new(settings)?;
        let listeners = daemon::bind(&[([127, 0, 0, 1], 0).into()])?;
        let api = listeners[0].local_addr().map_err(CommandFailure::local("cannot read the origin's address"))?;
        let config = dir.join("docwharf.toml");
        fs::write(&config, config_text(&api.to_string(), &listen.to_string()))
            .map_err(CommandFailure::local(format!("cannot write {}", config.display())))?;
        // Environment variables configure a real agent, not this one.
        let config_inputs = ConfigInputs {
            config_path: Some(config.clone()),
            ignores_environment: true,
            had_file: true,
            ..ConfigInputs::default()
        };
        let checked = config_inputs.load().map_err(CommandFailure::Config)?;
        let sockets = daemon::bind(&checked.listen)?;
        let site = sockets[0].local_addr().map_err(CommandFailure::local("cannot read the site's address"))?;
        self.explain(context, &dir, &site.to_string(), &api.to_string());

        let (stop, stopped) = watch::channel(false);
        let serving = serve_origin(Arc::clone(&origin), listeners, stopped)?;
        let result = daemon::run_on(
            sockets,
            RunParameters {
                config_inputs,
                config: checked,
                lock_timeout: STORE_LOCK_TIMEOUT,
                hangup: RunHangup::Stop,
                describe: exit_code_and_message,
            },
        );
        stop.send_replace(true);
        // The thread has logged its own error; the agent's result decides the exit code.
        let _ = serving.join();
        origin.close();
        result?;
        drop(folder);
        let fate = if dir.exists() { "stays" } else { "is removed" };
        context.print_note(&format!("docwharf: the demo has ended; {} {fate}", dir.display()));
        Ok(())
    }

    fn explain(&self, context: &CommandContext, dir: &Path, site: &str, api: &str) {
        let dir = dir.display();
        let end = if self.keep { "ends it; the folder stays" } else { "ends it and removes the folder" };
        context.print_note(&format!(
            "An agent fetches a site through the management API and serves it.\n\
             \n  open     http://{site}/\
             \n  source   {dir}/site\
             \n           change guides/try-it.html there, and reload it in a second or two\
             \n  history  docwharf history --config {dir}/docwharf.toml\
             \n  API      http://{api}/v1\
             \n  Ctrl-C   {end}\n"
        ));
    }
}

/// Writes the site and a random key into `dir`.
fn write_demo_folder(dir: &Path) -> std::io::Result<()> {
    for (name, content) in DEMO_SITE_FILES {
        let path = dir.join("site").join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(path)?.write_all(content)?;
    }
    let mut random = [0u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join("key"))?;
    writeln!(file, "dwk_{:032x}", u128::from_be_bytes(random))
}

fn config_text(api: &str, listen: &str) -> String {
    format!(
        "# The agent of `docwharf demo`. It reads the probe each second, and exports the site when the probe has changed.\n\
         [api]\nbaseUrl = \"http://{api}/v1\"\ndomain = \"{DEMO_DOMAIN}\"\nkeyFile = \"key\"\n\n\
         [sync]\ninterval = \"1s\"\nprobe = [\"http://{api}/sites/{DEMO_DOMAIN}/sitemap.xml\"]\n\n\
         [network]\npollFirst = \"100ms\"\npollMost = \"1s\"\n\n\
         # The origin is on loopback, whatever proxies the environment has.\n\
         [deployment]\ntype = \"air-gapped\"\n\n\
         [store]\npath = \"store\"\n\n[server]\nlisten = \"{listen}\"\ncsp = \"off\"\n"
    )
}

fn serve_origin(
    origin: Arc<OriginServer>,
    listeners: Vec<std::net::TcpListener>,
    stopped: watch::Receiver<bool>,
) -> Result<std::thread::JoinHandle<()>, CommandFailure> {
    let start = CommandFailure::local("cannot start the origin");
    let runtime =
        runtime::build_runtime(tokio::runtime::Builder::new_multi_thread().worker_threads(1)).map_err(start)?;
    let serving = move || {
        if let Err(error) = runtime.block_on(docwharf_origin::serve(origin, listeners, stopped)) {
            tracing::error!("the origin stopped: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("origin".to_owned());
    thread.spawn(serving).map_err(CommandFailure::local("cannot start the origin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_includes_every_file_of_the_demo_site_folder() {
        fn walk(dir: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/site");
        let mut found = Vec::new();
        walk(&root, &root, &mut found);
        found.sort();
        let shipped: Vec<&str> = DEMO_SITE_FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(shipped, found);
    }
}
