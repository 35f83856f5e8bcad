//! Which version waits to become active, and what for. Pure.

use crate::model::version::{Label, VersionId};
use crate::store::record::Record;

use super::{Activation, Intent};

/// A version that is in the store, would be next, and is not active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Which.
    pub version: VersionId,
    /// What it waits for.
    pub waits: Waits,
}

/// What a version waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// A person: `activate.mode` is "manual".
    Person,
    /// The gate to let it through; this is what it said.
    Gate(String),
    /// The end of a hold.
    Release,
    /// The next look.
    Look,
}

impl Waits {
    /// The word that `--json` uses.
    pub fn name(&self) -> &'static str {
        match self {
            Waits::Person => "manual",
            Waits::Gate(_) => "gate",
            Waits::Release => "hold",
            Waits::Look => "look",
        }
    }
}

/// The version that waits: the one that the pin names, else the one accepted last, unless it is active. Without a
/// configuration that can be read, the record alone tells.
pub fn staged(record: &Record, intent: Option<&Intent>) -> Option<Staged> {
    let version = record.waiting(intent.and_then(|intent| intent.pin.as_ref()).map(Label::as_str))?;
    let refused = record.gate.as_ref().filter(|verdict| verdict.version == version).and_then(|v| v.refused.clone());
    let waits = match refused {
        _ if record.hold.is_some() => Waits::Release,
        _ if intent.is_some_and(|intent| intent.activation == Activation::Manual) => Waits::Person,
        Some(why) => Waits::Gate(why),
        None => Waits::Look,
    };
    Some(Staged { version, waits })
}

/// What to do about a version that waits, as messages end.
pub fn way_out(staged: &Staged) -> String {
    let id = staged.version.short();
    match staged.waits {
        Waits::Person => format!("`docwharf activate {id}` makes it active"),
        Waits::Gate(_) => {
            format!("`docwharf activate {id}` lets it through, or --force with the sync or import that brings it")
        }
        Waits::Release => "`docwharf release` ends the hold".to_owned(),
        Waits::Look => "it is due at the next look".to_owned(),
    }
}
