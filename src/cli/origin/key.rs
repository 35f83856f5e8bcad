//! `docwharf origin key`: creates, lists and revokes the keys of an origin.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::{Context, Failure, print};
use docwharf_base::model::units::{parse_duration, show_unix};
use docwharf_origin::api_keys::{self, ApiKeyError, Scope};

use super::{config, database};

#[derive(Debug, Subcommand)]
pub(super) enum Key {
    /// Create a key and print it: it is shown only this once
    Create(Create),
    /// List keys, including expired and revoked ones
    List(List),
    /// Revoke a key, effective at once
    Revoke(Revoke),
}

#[derive(Debug, Args)]
pub(super) struct Create {
    /// The organization that the key belongs to
    organization: String,
    /// The key's name, by which it is revoked
    name: String,
    /// The key's scope: "read" allows GET, "write" everything
    #[arg(long, value_name = "SCOPE", default_value = "write", value_parser = ["read", "write"])]
    scope: String,
    /// How long it is valid; default: until it is revoked
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct List {}

#[derive(Debug, Args)]
pub(super) struct Revoke {
    /// The organization that the key belongs to
    organization: String,
    /// Its name, or its first part as `list` shows it
    name: String,
}

impl Key {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Key::Create(command) => command.run(context),
            Key::List(command) => command.run(context),
            Key::Revoke(command) => command.run(context),
        }
    }
}

impl Create {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let config = config(context)?;
        if !config.settings.organizations.iter().any(|organization| organization.id == self.organization) {
            return Err(Failure::Usage(format!("there is no organization {:?} in the file", self.organization)));
        }
        let life = self.expires.as_deref().map(parse_duration).transpose();
        let life = life.map_err(|why| Failure::Usage(format!("--expires: {why}")))?;
        if life.is_some_and(|life| life.is_zero()) {
            return Err(Failure::Usage("--expires: such a key would never work".to_owned()));
        }
        let scope = Scope::from_name(&self.scope).unwrap_or(Scope::Write);
        let key =
            api_keys::create(&database(&config)?, &self.organization, &self.name, scope, life).map_err(failure)?;
        let told = json!({ "schemaVersion": 1, "organization": self.organization, "name": self.name, "scope": scope.name(), "key": *key });
        context.result(&told, &format!("{}\n", *key))
    }
}

impl List {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let known = api_keys::list(&database(&config(context)?)?).map_err(docwharf_origin::OriginError::from)?;
        let time = |at: Option<i64>| at.map(|at| show_unix(at.div_euclid(1000)));
        if context.global.json {
            let list: Vec<_> = known
                .iter()
                .map(|key| {
                    json!({
                        "organization": key.organization, "name": key.name, "prefix": key.prefix,
                        "scope": key.scope.name(), "createdAt": time(Some(key.created)),
                        "expiresAt": time(key.expires), "revokedAt": time(key.revoked),
                    })
                })
                .collect();
            return context.result(&json!({ "schemaVersion": 1, "keys": list }), "");
        }
        let mut text = String::new();
        for key in &known {
            let end = match (time(key.revoked), time(key.expires)) {
                (Some(since), _) => format!("revoked {since}"),
                (None, Some(end)) => format!("until {end}"),
                (None, None) => "no end".to_owned(),
            };
            let _ = writeln!(
                text,
                "{}  {:5}  {}  {}  {}  {end}",
                key.prefix,
                key.scope.name(),
                time(Some(key.created)).unwrap_or_default(),
                key.organization,
                key.name
            );
        }
        print(&text)
    }
}

impl Revoke {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let db = database(&config(context)?)?;
        api_keys::revoke(&db, &self.organization, &self.name).map_err(failure)?;
        let told = json!({ "schemaVersion": 1, "organization": self.organization, "revoked": self.name });
        context.result(&told, &format!("{} of {} is revoked\n", self.name, self.organization))
    }
}

fn failure(error: ApiKeyError) -> Failure {
    match error {
        ApiKeyError::Database(error) => docwharf_origin::OriginError::from(error).into(),
        ApiKeyError::Random(source) => Failure::Local { doing: "cannot draw a key".to_owned(), source },
        other => Failure::Usage(other.to_string()),
    }
}
