//! `docwharf origin key`: creates, lists and revokes the keys of an origin.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::context::CommandContext;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print;
use docwharf_base::model::units::{format_unix_seconds, parse_duration};
use docwharf_origin::api_keys::{self, ApiKeyError, KeyScope};

use super::configured::{open_database, read_origin_config};

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create a key and print it: it is shown only this once
    Create(KeyCreateCommand),
    /// List keys, including expired and revoked ones
    List(KeyListCommand),
    /// Revoke a key, effective at once
    Revoke(KeyRevokeCommand),
}

#[derive(Debug, Args)]
pub(super) struct KeyCreateCommand {
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
pub(super) struct KeyListCommand {}

#[derive(Debug, Args)]
pub(super) struct KeyRevokeCommand {
    /// The organization that the key belongs to
    organization: String,
    /// Its name, or its first part as `list` shows it
    name: String,
}

impl KeyCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            KeyCommand::Create(command) => command.run(context),
            KeyCommand::List(command) => command.run(context),
            KeyCommand::Revoke(command) => command.run(context),
        }
    }
}

impl KeyCreateCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = read_origin_config(context)?;
        if !config.settings.organizations.iter().any(|organization| organization.id == self.organization) {
            return Err(CommandFailure::Usage(format!("there is no organization {:?} in the file", self.organization)));
        }
        let lifetime = self.expires.as_deref().map(parse_duration).transpose();
        let lifetime = lifetime.map_err(|why| CommandFailure::Usage(format!("--expires: {why}")))?;
        if lifetime.is_some_and(|lifetime| lifetime.is_zero()) {
            return Err(CommandFailure::Usage(
                "--expires: such a key would never be valid; write a duration above 0, such as 90d".to_owned(),
            ));
        }
        let scope = KeyScope::from_name(&self.scope).unwrap_or(KeyScope::Write);
        let key = api_keys::create(&open_database(&config)?, &self.organization, &self.name, scope, lifetime)
            .map_err(failure)?;
        let json = json!({ "schemaVersion": 1, "organization": self.organization, "name": self.name, "scope": scope.name(), "key": *key });
        context.print_result(&json, &format!("{}\n", *key))
    }
}

impl KeyListCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let keys = api_keys::list(&open_database(&read_origin_config(context)?)?)
            .map_err(docwharf_origin::OriginError::from)?;
        let time = |millis: Option<i64>| millis.map(|millis| format_unix_seconds(millis.div_euclid(1000)));
        if context.global.json {
            let list: Vec<_> = keys
                .iter()
                .map(|key| {
                    json!({
                        "organization": key.organization, "name": key.name, "prefix": key.prefix,
                        "scope": key.scope.name(), "createdAt": time(Some(key.created)),
                        "expiresAt": time(key.expires), "revokedAt": time(key.revoked),
                    })
                })
                .collect();
            return context.print_result(&json!({ "schemaVersion": 1, "keys": list }), "");
        }
        let mut text = String::new();
        for key in &keys {
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

impl KeyRevokeCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let db = open_database(&read_origin_config(context)?)?;
        api_keys::revoke(&db, &self.organization, &self.name).map_err(failure)?;
        let json = json!({ "schemaVersion": 1, "organization": self.organization, "revoked": self.name });
        context.print_result(&json, &format!("{} of {} is revoked\n", self.name, self.organization))
    }
}

fn failure(error: ApiKeyError) -> CommandFailure {
    match error {
        ApiKeyError::Database(error) => docwharf_origin::OriginError::from(error).into(),
        ApiKeyError::Random(source) => CommandFailure::Local { doing: "cannot generate a key".to_owned(), source },
        other => CommandFailure::Usage(other.to_string()),
    }
}
