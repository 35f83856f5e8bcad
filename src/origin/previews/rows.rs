//! Previews and deployments in the database. Each function is one transaction, or a part of one.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::model::units::show_unix;
use crate::model::version::VersionId;

use super::deployment::{Author, Commit, Deployment, Status, Trigger};
use super::slug;

/// Deployments of a project that are remembered after they have ended.
const REMEMBERED: u32 = 100;
/// What is said of a deployment during which the process ended.
pub(super) const STOPPED: &str = "the origin was stopped while it was being built; deploy again";

/// A preview as it is kept.
#[derive(Debug)]
pub(super) struct Preview {
    pub(super) project: String,
    pub(super) branch: String,
    pub(super) slug: String,
    /// What it shows, and the deployment in whose folder that lies.
    pub(super) shown: Option<(VersionId, String)>,
}

/// A deployment that waits.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) organization: String,
    pub(super) project: String,
    pub(super) branch: String,
    pub(super) slug: String,
}

/// What has become of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its preview shows this from now on.
    Shown(VersionId),
    /// Nothing; its preview shows what it has shown before.
    Failed,
    /// There is no such branch, and so no such preview.
    NoBranch,
}

/// How a deployment has ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) summary: String,
    pub(super) logs: Vec<String>,
    pub(super) commit: Option<Commit>,
    pub(super) author: Option<Author>,
}

/// What else has ended with it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// The deployment whose version is not shown any more.
    pub(super) unneeded: Option<String>,
    /// Whether the preview itself is gone.
    pub(super) is_gone: bool,
}

/// Writes down a deployment, and its preview if that is new. `wanted.slug` is filled in: that of the preview.
pub(super) fn queue(transaction: &Transaction<'_>, wanted: &Waiting, now: i64) -> rusqlite::Result<String> {
    let Waiting { id, organization, project, branch, .. } = wanted;
    let known = transaction
        .query_row("SELECT slug FROM previews WHERE project = ?1 AND branch = ?2", [project, branch], |row| row.get(0))
        .optional()?;
    let slug = match known {
        Some(slug) => slug,
        None => settle(transaction, wanted, now)?,
    };
    transaction.execute(
        "INSERT INTO deployments (id, organization, project, branch, slug, status, created)
         VALUES (?1, ?2, ?3, ?4, ?5, 'queued', ?6)",
        params![id, organization, project, branch, slug, now],
    )?;
    Ok(slug)
}

/// Gives a new preview a slug that no other has.
fn settle(transaction: &Transaction<'_>, wanted: &Waiting, now: i64) -> rusqlite::Result<String> {
    let Waiting { organization, project, branch, .. } = wanted;
    for slug in slug::candidates(project, branch) {
        let added = transaction.execute(
            "INSERT INTO previews (organization, project, branch, slug, created) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (slug) DO NOTHING",
            params![organization, project, branch, slug, now],
        )?;
        if added > 0 {
            return Ok(slug);
        }
    }
    // 160 bits of a digest are somebody else's.
    Err(rusqlite::Error::QueryReturnedNoRows)
}

/// Says that a deployment is being built.
pub(super) fn begin(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("UPDATE deployments SET status = 'in_progress' WHERE id = ?1", [id]).map(drop)
}

/// Says how a deployment has ended, and what its preview shows.
pub(super) fn end(transaction: &Transaction<'_>, of: &Waiting, end: &End, now: i64) -> rusqlite::Result<Ended> {
    let status = if matches!(end.outcome, Outcome::Shown(_)) { Status::Success } else { Status::Failure };
    transaction.execute(
        "UPDATE deployments SET status = ?2, ended = ?3, summary = ?4, logs = ?5, commit_of = ?6, author = ?7
         WHERE id = ?1",
        params![
            of.id,
            status.name(),
            now,
            end.summary,
            json(&end.logs),
            end.commit.as_ref().map(json),
            end.author.as_ref().map(json)
        ],
    )?;
    let find = "SELECT deployment FROM previews WHERE project = ?1 AND branch = ?2";
    let before: Option<Option<String>> =
        transaction.query_row(find, [&of.project, &of.branch], |row| row.get(0)).optional()?;
    let ended = match end.outcome {
        Outcome::Failed => Ended::default(),
        Outcome::Shown(version) => {
            transaction.execute(
                "UPDATE previews SET version = ?3, deployment = ?4 WHERE project = ?1 AND branch = ?2",
                params![of.project, of.branch, version.to_string(), of.id],
            )?;
            Ended { unneeded: before.flatten(), is_gone: false }
        }
        // Whoever is asked for it again meanwhile sees for himself.
        Outcome::NoBranch => {
            let removed = transaction.execute(
                "DELETE FROM previews WHERE project = ?1 AND branch = ?2 AND NOT EXISTS (
                     SELECT 1 FROM deployments WHERE project = ?1 AND branch = ?2 AND ended IS NULL)",
                [&of.project, &of.branch],
            )?;
            let is_gone = removed > 0;
            Ended { unneeded: before.flatten().filter(|_| is_gone), is_gone }
        }
    };
    forget(transaction, &of.project)?;
    Ok(ended)
}

/// Forgets the oldest deployments of a project that have ended and are shown nowhere.
fn forget(transaction: &Transaction<'_>, project: &str) -> rusqlite::Result<()> {
    transaction
        .execute(
            "DELETE FROM deployments WHERE id IN (
                 SELECT id FROM deployments
                 WHERE project = ?1 AND ended IS NOT NULL
                   AND id NOT IN (SELECT deployment FROM previews WHERE deployment IS NOT NULL)
                 ORDER BY created DESC, id LIMIT -1 OFFSET ?2)",
            params![project, REMEMBERED],
        )
        .map(drop)
}

/// Removes the previews of a project whose branch is not among `branches`, as they were at the time `seen`. One that
/// somebody has deployed since then, or that is about to be built, stays: whoever builds it sees for himself.
pub(super) fn sweep(
    transaction: &Transaction<'_>,
    project: &str,
    branches: &BTreeSet<String>,
    seen: i64,
) -> rusqlite::Result<Vec<Preview>> {
    let mut gone = Vec::new();
    for preview in previews(transaction)?.into_iter().filter(|preview| preview.project == project) {
        if branches.contains(&preview.branch) {
            continue;
        }
        let removed = transaction.execute(
            "DELETE FROM previews WHERE project = ?1 AND branch = ?2 AND NOT EXISTS (
                 SELECT 1 FROM deployments
                 WHERE project = ?1 AND branch = ?2 AND (created >= ?3 OR ended IS NULL))",
            params![project, preview.branch, seen],
        )?;
        if removed > 0 {
            gone.push(preview);
        }
    }
    Ok(gone)
}

/// Whether a project has previews at all.
pub(super) fn has_previews(connection: &Connection, project: &str) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM previews WHERE project = ?1)", [project], |row| row.get(0))
}

/// All previews, in the order in which they were made.
pub(super) fn previews(connection: &Connection) -> rusqlite::Result<Vec<Preview>> {
    let mut found =
        connection.prepare("SELECT project, branch, slug, version, deployment FROM previews ORDER BY id")?;
    let of = |row: &Row<'_>| {
        let version: Option<String> = row.get("version")?;
        let version = version.and_then(|text| text.parse().ok());
        Ok(Preview {
            project: row.get("project")?,
            branch: row.get("branch")?,
            slug: row.get("slug")?,
            shown: version.zip(row.get("deployment")?),
        })
    };
    found.query_map([], of)?.collect()
}

/// After a start: what was being built when the process ended has failed. What waited waits still, and comes back, the
/// oldest first.
pub(super) fn resume(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<Vec<Waiting>> {
    transaction.execute(
        "UPDATE deployments SET status = 'failure', ended = ?1, summary = ?2 WHERE status = 'in_progress'",
        params![now, STOPPED],
    )?;
    let mut found = transaction.prepare(
        "SELECT id, organization, project, branch, slug FROM deployments WHERE status = 'queued' ORDER BY created, id",
    )?;
    let of = |row: &Row<'_>| {
        Ok(Waiting {
            id: row.get("id")?,
            organization: row.get("organization")?,
            project: row.get("project")?,
            branch: row.get("branch")?,
            slug: row.get("slug")?,
        })
    };
    found.query_map([], of)?.collect()
}

/// A deployment as it was last written down.
pub(super) fn deployment(connection: &Connection, id: &str) -> rusqlite::Result<Option<Deployment>> {
    let of = |row: &Row<'_>| {
        let (logs, commit, author): (String, Option<String>, Option<String>) =
            (row.get("logs")?, row.get("commit_of")?, row.get("author")?);
        let ended: Option<i64> = row.get("ended")?;
        Ok(Deployment {
            id: row.get("id")?,
            organization: row.get("organization")?,
            project_id: row.get("project")?,
            created_at: show(row.get("created")?),
            ended_at: ended.map(show),
            status: Status::of(&row.get::<_, String>("status")?),
            summary: row.get("summary")?,
            logs: serde_json::from_str(&logs).unwrap_or_default(),
            subdomain: row.get("slug")?,
            author: author.and_then(|text| serde_json::from_str(&text).ok()),
            commit: commit.and_then(|text| serde_json::from_str(&text).ok()),
            source: Trigger::Api,
        })
    };
    connection.query_row("SELECT * FROM deployments WHERE id = ?1", [id], of).optional()
}

/// Milliseconds since 1970 as clients read them.
fn show(milliseconds: i64) -> String {
    show_unix(milliseconds.div_euclid(1000))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("lists and structs of texts are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::db::Database;

    #[test]
    fn the_preview_of_a_branch_that_is_gone_goes_unless_it_was_deployed_since_the_branches_were_listed() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(&dir.path().join("origin.db")).unwrap();
        let seen = 1000;
        // Branch, when it was deployed, when that ended, whether the preview stays.
        let rows = [
            ("listed", 1, Some(2), true),
            ("gone", 998, Some(999), false),
            ("deployed since", 1000, Some(1001), true),
            ("in the queue", 1, None, true),
        ];
        let gone = db.write(move |transaction| {
            for (branch, created, ended, _) in rows {
                let preview = "INSERT INTO previews (organization, project, branch, slug, created)
                    VALUES ('acme', 'docs', ?1, ?1, 1)";
                transaction.execute(preview, params![branch])?;
                let status = if ended.is_some() { "success" } else { "queued" };
                let deployment = "INSERT INTO deployments
                    (id, organization, project, branch, slug, status, created, ended)
                    VALUES (?1, 'acme', 'docs', ?1, ?1, ?2, ?3, ?4)";
                transaction.execute(deployment, params![branch, status, created, ended])?;
            }
            sweep(transaction, "docs", &BTreeSet::from(["listed".to_owned()]), seen)
        });
        let gone: Vec<String> = gone.unwrap().into_iter().map(|preview| preview.branch).collect();
        let expected = rows.iter().filter(|(.., stays)| !stays).map(|(branch, ..)| (*branch).to_owned());
        assert_eq!(gone, expected.collect::<Vec<_>>());
    }
}
