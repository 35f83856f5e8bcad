//! `docwharf import FILE|DIR`

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};

use crate::admin::wire::{self, Told, Verb};
use crate::model::version::Label;
use crate::seal::pack::pack;
use crate::seal::{Effort, SealError};
use crate::sync::act::Means;
use crate::sync::settle::{Handed, import};

use super::attend::attended;
use super::order::{Hand, hand, order, tell};
use super::publish::published;
use super::{Context, Failure, sync, who};

#[derive(Debug, Args)]
pub(super) struct Import {
    /// A zip, tar, tar.gz or tar.zst, or a folder
    path: PathBuf,
    /// Give the version this label
    #[arg(long)]
    label: Option<String>,
    /// Activate it whatever the gate says; a hold or a pin stays
    #[arg(long)]
    force: bool,
}

impl Import {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let label = self.label.as_deref().map(Label::new).transpose();
        let label = label.map_err(|why| Failure::Usage(format!("--label: {why}")))?;
        let config = context.config()?;
        let intent = sync::unhurried(&config);
        let source = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()).display().to_string();
        let sources = context.sources();
        let (told, published) = attended(context, move |means| match hand(&config.store, means)? {
            Hand::Here(writer) => {
                means.doing.tell("proving the bundle");
                let meter = &means.doing.sealing;
                let (path, who) = (self.path.as_path(), who());
                let handed = Handed { path, source: &source, label: label.as_ref(), who: &who, force: self.force };
                let report = import(&writer, &intent, handed, meter)?;
                Ok((Told::of(&report), published(&sources, &writer)))
            }
            Hand::Daemon(daemon) => {
                let deposit = Deposit::of(&self.path, &config.store, &intent.effort, means)?;
                let verb = Verb::Import(wire::Import {
                    path: deposit.path.clone(),
                    source,
                    label: self.label,
                    force: self.force,
                });
                order(&daemon, &config.store, verb, None, means).map(|told| (told, Ok(())))
            }
        })??;
        tell(context, &told).and(published)
    }
}

/// A copy of the bundle where the daemon can read it: what we see it may not, for it may run as another user, with its
/// own `/tmp` and without `/home`. Gone when dropped.
struct Deposit {
    /// As the daemon knows it.
    path: PathBuf,
    /// The folder is held open and never a link: its owner may be another user than we, who may be root.
    staging: OwnedFd,
    name: String,
}

impl Deposit {
    fn of(path: &Path, store: &Path, effort: &Effort, means: &Means) -> Result<Deposit, Failure> {
        let doing = || format!("cannot copy {} into the store", path.display());
        let unread = |source| SealError::Read { path: path.into(), source };
        let name = format!("import-{}.tar", std::process::id());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let staging = rustix::fs::open(store.join("staging"), flags, Mode::empty());
        let staging = staging.map_err(|errno| Failure::local(doing())(errno.into()))?;
        let deposit = Deposit { path: store.join("staging").join(&name), staging, name };
        let beside = PathBuf::from(format!("/proc/self/fd/{}", deposit.staging.as_raw_fd())).join(&deposit.name);
        let copy = if fs::metadata(path).map_err(unread)?.is_dir() {
            means.doing.tell("packing the folder");
            pack(path, &beside, effort, &means.doing.sealing)?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&deposit.staging, &deposit.name, flags, Mode::empty());
            File::from(opened.map_err(|errno| Failure::local(doing())(errno.into()))?)
        } else {
            means.doing.tell("handing the bundle to the daemon");
            let mut from = File::open(path).map_err(unread)?;
            let mut to = File::create_new(&beside).map_err(Failure::local(doing()))?;
            std::io::copy(&mut from, &mut to).map_err(Failure::local(doing()))?;
            to
        };
        // Whoever the daemon is.
        copy.set_permissions(fs::Permissions::from_mode(0o644)).map_err(Failure::local(doing()))?;
        Ok(deposit)
    }
}

impl Drop for Deposit {
    fn drop(&mut self) {
        let _ = unlinkat(&self.staging, &self.name, AtFlags::empty());
    }
}
