//! Rows of previews and deployments in the database. Each function is one transaction, or a part of one.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use docwharf_base::model::units::show_unix;
use docwharf_base::model::version::VersionId;

use super::deployment::{Author, Commit, Deployment, Status, Trigger};
use super::slug;

/// Number of ended deployments of a project that are kept.
const REMEMBERED: u32 = 100;
/// Summary of a deployment that was being built when the process ended.
pub(super) const STOPPED: &str = "the origin was stopped while it was being built; deploy again";

/// A preview as stored in the database.
#[derive(Debug)]
pub(super) struct PreviewRow {
    pub(super) project: String,
    pub(super) branch: String,
    pub(super) slug: String,
    /// The version that it serves, and the deployment whose folder holds it.
    pub(super) shown: Option<(VersionId, String)>,
}

/// A waiting deployment.
#[derive(Debug, Clone)]
pub(super) struct QueuedDeployment {
    pub(super) id: String,
    pub(super) organization: String,
    pub(super) project: String,
    pub(super) branch: String,
    pub(super) slug: String,
}

/// Outcome of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeploymentOutcome {
    /// Its preview serves this version from now on.
    Shown(VersionId),
    /// It failed; its preview serves what it served before.
    Failed,
    /// The branch does not exist, so its preview is removed.
    NoBranch,
}

/// Result of a deployment, as it is stored.
#[derive(Debug, Clone)]
pub(super) struct DeploymentEnd {
    pub(super) outcome: DeploymentOutcome,
    pub(super) summary: String,
    pub(super) logs: Vec<String>,
    pub(super) commit: Option<Commit>,
    pub(super) author: Option<Author>,
}

/// Effect of a deployment's end on its preview.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PreviewChange {
    /// The deployment whose version is not served any more.
    pub(super) unneeded: Option<String>,
    /// Whether the preview itself was removed.
    pub(super) is_gone: bool,
}

/// Inserts a deployment, and its preview if that is new. Returns the slug of the preview, with which the caller
/// completes `wanted`.
pub(super) fn queue(transaction: &Transaction<'_>, wanted: &QueuedDeployment, now: i64) -> rusqlite::Result<String> {
    let QueuedDeployment { id, organization, project, branch, .. } = wanted;
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

/// Inserts a new preview with a slug that no other has.
fn settle(transaction: &Transaction<'_>, wanted: &QueuedDeployment, now: i64) -> rusqlite::Result<String> {
    let QueuedDeployment { organization, project, branch, .. } = wanted;
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
    // Another branch has the same 160 bits of a digest.
    Err(rusqlite::Error::QueryReturnedNoRows)
}

/// Marks a deployment as being built.
pub(super) fn begin(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("UPDATE deployments SET status = 'in_progress' WHERE id = ?1", [id]).map(drop)
}

/// Records how a deployment has ended, and which version its preview serves.
pub(super) fn end(
    transaction: &Transaction<'_>,
    of: &QueuedDeployment,
    end: &DeploymentEnd,
    now: i64,
) -> rusqlite::Result<PreviewChange> {
    let status = if matches!(end.outcome, DeploymentOutcome::Shown(_)) { Status::Success } else { Status::Failure };
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
        DeploymentOutcome::Failed => PreviewChange::default(),
        DeploymentOutcome::Shown(version) => {
            transaction.execute(
                "UPDATE previews SET version = ?3, deployment = ?4 WHERE project = ?1 AND branch = ?2",
                params![of.project, of.branch, version.to_string(), of.id],
            )?;
            PreviewChange { unneeded: before.flatten(), is_gone: false }
        }
        // A later deployment of this branch that has not ended checks by itself whether the branch exists.
        DeploymentOutcome::NoBranch => {
            let removed = transaction.execute(
                "DELETE FROM previews WHERE project = ?1 AND branch = ?2 AND NOT EXISTS (
                     SELECT 1 FROM deployments WHERE project = ?1 AND branch = ?2 AND ended IS NULL)",
                [&of.project, &of.branch],
            )?;
            let is_gone = removed > 0;
            PreviewChange { unneeded: before.flatten().filter(|_| is_gone), is_gone }
        }
    };
    forget(transaction, &of.project)?;
    Ok(ended)
}

/// Deletes the oldest deployments of a project that have ended and whose version is not served.
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

/// Removes the previews of a project whose branch is not in `branches`, which were listed at the time `seen`, and
/// returns them. A preview with a deployment created since then, or with one that has not ended, stays: that deployment
/// checks by itself whether the branch exists.
pub(super) fn sweep(
    transaction: &Transaction<'_>,
    project: &str,
    branches: &BTreeSet<String>,
    seen: i64,
) -> rusqlite::Result<Vec<PreviewRow>> {
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

/// Whether a project has any preview.
pub(super) fn has_previews(connection: &Connection, project: &str) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM previews WHERE project = ?1)", [project], |row| row.get(0))
}

/// Returns all previews in the order of their creation.
pub(super) fn previews(connection: &Connection) -> rusqlite::Result<Vec<PreviewRow>> {
    let mut found =
        connection.prepare("SELECT project, branch, slug, version, deployment FROM previews ORDER BY id")?;
    let of = |row: &Row<'_>| {
        let version: Option<String> = row.get("version")?;
        let version = version.and_then(|text| text.parse().ok());
        Ok(PreviewRow {
            project: row.get("project")?,
            branch: row.get("branch")?,
            slug: row.get("slug")?,
            shown: version.zip(row.get("deployment")?),
        })
    };
    found.query_map([], of)?.collect()
}

/// Marks deployments that were being built when the last process ended as failed. Returns the waiting ones, the oldest
/// first.
pub(super) fn resume(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<Vec<QueuedDeployment>> {
    transaction.execute(
        "UPDATE deployments SET status = 'failure', ended = ?1, summary = ?2 WHERE status = 'in_progress'",
        params![now, STOPPED],
    )?;
    let mut found = transaction.prepare(
        "SELECT id, organization, project, branch, slug FROM deployments WHERE status = 'queued' ORDER BY created, id",
    )?;
    let of = |row: &Row<'_>| {
        Ok(QueuedDeployment {
            id: row.get("id")?,
            organization: row.get("organization")?,
            project: row.get("project")?,
            branch: row.get("branch")?,
            slug: row.get("slug")?,
        })
    };
    found.query_map([], of)?.collect()
}

/// Returns a deployment as it was last stored.
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

/// Formats milliseconds since 1970 as clients read them.
fn show(milliseconds: i64) -> String {
    show_unix(milliseconds.div_euclid(1000))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("lists and structs of texts are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;

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
        let gone = db.run_writer(move |transaction| {
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

    fn database() -> (tempfile::TempDir, Database) {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(&dir.path().join("origin.db")).unwrap();
        (dir, db)
    }

    fn waiting(project: &str, branch: &str, id: &str) -> QueuedDeployment {
        let text = str::to_owned;
        let slug = String::new();
        QueuedDeployment {
            id: text(id),
            organization: text("acme"),
            project: text(project),
            branch: text(branch),
            slug,
        }
    }

    fn ends(outcome: DeploymentOutcome) -> DeploymentEnd {
        let commit = Commit {
            sha: "1".to_owned(),
            branch: "main".to_owned(),
            message: "m".to_owned(),
            files_changed: super::super::deployment::FilesChanged::default(),
        };
        let author = Author { name: "a".to_owned(), email: "a@b".to_owned() };
        DeploymentEnd {
            outcome,
            summary: "s".to_owned(),
            logs: vec!["l".to_owned()],
            commit: Some(commit),
            author: Some(author),
        }
    }

    fn version(text: &str) -> VersionId {
        VersionId(docwharf_base::model::digest::Digest::of(text.as_bytes()))
    }

    #[test]
    fn a_preview_shows_the_last_deployment_that_went_well_until_its_branch_is_gone() {
        let (_dir, db) = database();
        let shown = |id: &str| (false, Some(id.to_owned()));
        // How each deployment ends, which one is not needed any more, whether the preview is gone, and what it serves.
        let steps = [
            (DeploymentOutcome::Failed, None, (false, None)),
            (DeploymentOutcome::Shown(version("1")), None, shown("d1")),
            (DeploymentOutcome::Failed, None, shown("d1")),
            (DeploymentOutcome::Shown(version("3")), Some("d1"), shown("d3")),
            (DeploymentOutcome::NoBranch, Some("d3"), (true, None)),
            (DeploymentOutcome::NoBranch, None, (true, None)),
        ];
        for (n, (outcome, unneeded, (is_gone, shows))) in steps.into_iter().enumerate() {
            let job = waiting("docs", "Main", &format!("d{n}"));
            let ended = db.run_writer(move |transaction| {
                assert_eq!(queue(transaction, &job, 1)?, "main");
                begin(transaction, &job.id)?;
                end(transaction, &job, &ends(outcome), 2000)
            });
            assert_eq!(ended.unwrap(), PreviewChange { unneeded: unneeded.map(str::to_owned), is_gone }, "step {n}");
            let all = db.read(previews).unwrap();
            assert_eq!(
                (all.is_empty(), db.read(|connection| has_previews(connection, "docs")).unwrap()),
                (is_gone, !is_gone)
            );
            let found = all.into_iter().next().and_then(|preview| preview.shown).map(|(_, id)| id);
            assert_eq!(found, shows, "step {n}");
            let told = db.read(|connection| deployment(connection, &format!("d{n}"))).unwrap().unwrap();
            let status = if matches!(outcome, DeploymentOutcome::Shown(_)) { Status::Success } else { Status::Failure };
            assert_eq!((told.status, told.summary.as_deref(), &*told.logs), (status, Some("s"), &["l".to_owned()][..]));
            assert_eq!(told.ended_at.as_deref(), Some("1970-01-01T00:00:02Z"));
            assert_eq!((told.commit, told.author), (ends(outcome).commit, ends(outcome).author));
        }
        assert!(!db.read(|connection| has_previews(connection, "other")).unwrap());
        assert!(db.read(|connection| deployment(connection, "d9")).unwrap().is_none());
    }

    #[test]
    fn a_preview_without_a_branch_stays_while_another_deployment_of_it_waits() {
        let (_dir, db) = database();
        let ended = db.run_writer(|transaction| {
            let (first, second) = (waiting("docs", "b", "d1"), waiting("docs", "b", "d2"));
            queue(transaction, &first, 1)?;
            end(transaction, &first, &ends(DeploymentOutcome::Shown(version("1"))), 2)?;
            queue(transaction, &second, 3)?;
            queue(transaction, &waiting("docs", "b", "d3"), 4)?;
            let meanwhile = end(transaction, &second, &ends(DeploymentOutcome::NoBranch), 5)?;
            Ok((meanwhile, previews(transaction)?.len()))
        });
        assert_eq!(ended.unwrap(), (PreviewChange { unneeded: None, is_gone: false }, 1));
    }

    #[test]
    fn two_branches_that_look_the_same_have_addresses_of_their_own_and_keep_them() {
        let (_dir, db) = database();
        let slugs = db.run_writer(|transaction| {
            let asked = [("docs", "a/b", "1"), ("docs", "a.b", "2"), ("other", "a-b", "3"), ("docs", "a/b", "4")];
            asked.iter().map(|(project, branch, id)| queue(transaction, &waiting(project, branch, id), 1)).collect()
        });
        let slugs: Vec<String> = slugs.unwrap();
        assert_eq!((&*slugs[0], &slugs[3]), ("a-b", &slugs[0]));
        assert!(slugs[1] != slugs[2] && slugs[1..3].iter().all(|slug| slug.starts_with("a-b-")), "{slugs:?}");
    }

    #[test]
    fn after_a_start_what_was_being_built_has_failed_and_what_waited_waits_the_oldest_first() {
        let (_dir, db) = database();
        let resumed = db.run_writer(|transaction| {
            for (id, created) in [("late", 9), ("built", 1), ("early", 2), ("b", 2), ("done", 1)] {
                queue(transaction, &waiting("docs", id, id), created)?;
            }
            begin(transaction, "built")?;
            end(transaction, &waiting("docs", "done", "done"), &ends(DeploymentOutcome::Shown(version("1"))), 3)?;
            resume(transaction, 5000)
        });
        let resumed: Vec<(String, String)> = resumed.unwrap().into_iter().map(|job| (job.id, job.slug)).collect();
        assert_eq!(resumed, ["b", "early", "late"].map(|id| (id.to_owned(), id.to_owned())));
        let status = |id: &str| {
            let told = db.read(|connection| deployment(connection, id)).unwrap().unwrap();
            (told.status, told.summary, told.ended_at)
        };
        let stopped = (Status::Failure, Some(STOPPED.to_owned()), Some("1970-01-01T00:00:05Z".to_owned()));
        assert_eq!(status("built"), stopped);
        assert_eq!(status("early"), (Status::Queued, None, None));
        assert_eq!(status("done").0, Status::Success);
    }

    #[test]
    fn the_oldest_deployments_of_a_project_are_forgotten_unless_they_are_shown() {
        let (_dir, db) = database();
        let kept = db.run_writer(|transaction| {
            let other = waiting("other", "x", "other");
            queue(transaction, &other, 0)?;
            end(transaction, &other, &ends(DeploymentOutcome::Failed), 0)?;
            for n in 0..104_i64 {
                let job = waiting("docs", if n == 0 { "shown" } else { "b" }, &format!("d{n:03}"));
                queue(transaction, &job, n)?;
                match n {
                    0 => drop(end(transaction, &job, &ends(DeploymentOutcome::Shown(version("0"))), n)?),
                    // It waits still.
                    1 => {}
                    _ => drop(end(transaction, &job, &ends(DeploymentOutcome::Failed), n)?),
                }
            }
            let mut rows = transaction.prepare("SELECT id FROM deployments ORDER BY id")?;
            rows.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
        });
        let newest = (4..104).map(|n| format!("d{n:03}"));
        let expected: Vec<String> = ["d000", "d001"].map(str::to_owned).into_iter().chain(newest).collect();
        assert_eq!(kept.unwrap(), [&expected[..], &["other".to_owned()]].concat());
    }
}
