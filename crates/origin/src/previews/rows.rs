//! Rows of previews and deployments in the database. Each function is one transaction, or a part of one.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::model::version::VersionId;

use super::deployment::{ApiAuthor, ApiCommit, Deployment, DeploymentSource, DeploymentStatus};
use super::slug;

/// Number of ended deployments of a project that are stored.
const MAX_ENDED_DEPLOYMENTS: u32 = 100;
/// Summary of a deployment that was being built when the process ended.
pub(super) const INTERRUPTED_SUMMARY: &str = "the origin was stopped while it was being built; deploy again";

/// A preview as stored in the database.
#[derive(Debug)]
pub(super) struct PreviewRow {
    pub(super) project: String,
    pub(super) branch: String,
    pub(super) slug: String,
    /// The version that it serves, and the deployment whose folder holds it.
    pub(super) served: Option<(VersionId, String)>,
}

/// A deployment that was requested; it waits, is being built, or has ended.
#[derive(Debug, Clone)]
pub(super) struct DeploymentRequest {
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
    Served(VersionId),
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
    pub(super) commit: Option<ApiCommit>,
    pub(super) author: Option<ApiAuthor>,
}

/// Effect of a deployment's end on its preview.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PreviewChange {
    /// The deployment whose version is not served any more.
    pub(super) replaced_deployment: Option<String>,
    /// Whether the preview itself was removed.
    pub(super) is_removed: bool,
}

/// Inserts a deployment, and its preview if that is new. Returns the slug of the preview, with which the caller
/// completes `deployment`.
pub(super) fn insert_deployment(
    transaction: &Transaction<'_>,
    deployment: &DeploymentRequest,
    now: i64,
) -> rusqlite::Result<String> {
    let DeploymentRequest { id, organization, project, branch, .. } = deployment;
    let existing_slug = transaction
        .query_row("SELECT slug FROM previews WHERE project = ?1 AND branch = ?2", [project, branch], |row| row.get(0))
        .optional()?;
    let slug = match existing_slug {
        Some(slug) => slug,
        None => insert_preview(transaction, deployment, now)?,
    };
    transaction.execute(
        "INSERT INTO deployments (id, organization, project, branch, slug, status, created)
         VALUES (?1, ?2, ?3, ?4, ?5, 'queued', ?6)",
        params![id, organization, project, branch, slug, now],
    )?;
    Ok(slug)
}

/// Inserts a new preview with a slug that no other has.
fn insert_preview(transaction: &Transaction<'_>, deployment: &DeploymentRequest, now: i64) -> rusqlite::Result<String> {
    let DeploymentRequest { organization, project, branch, .. } = deployment;
    for slug in slug::slug_candidates(project, branch) {
        let inserted = transaction.execute(
            "INSERT INTO previews (organization, project, branch, slug, created) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (slug) DO NOTHING",
            params![organization, project, branch, slug, now],
        )?;
        if inserted > 0 {
            return Ok(slug);
        }
    }
    // Only another branch with the same 160 bits of the digest leads to this error.
    Err(rusqlite::Error::QueryReturnedNoRows)
}

/// Marks a deployment as being built.
pub(super) fn mark_in_progress(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("UPDATE deployments SET status = 'in_progress' WHERE id = ?1", [id]).map(drop)
}

/// Records how a deployment has ended, and which version its preview serves.
pub(super) fn record_end(
    transaction: &Transaction<'_>,
    deployment: &DeploymentRequest,
    end: &DeploymentEnd,
    now: i64,
) -> rusqlite::Result<PreviewChange> {
    let status = if matches!(end.outcome, DeploymentOutcome::Served(_)) {
        DeploymentStatus::Success
    } else {
        DeploymentStatus::Failure
    };
    transaction.execute(
        "UPDATE deployments SET status = ?2, ended = ?3, summary = ?4, logs = ?5, commit_of = ?6, author = ?7
         WHERE id = ?1",
        params![
            deployment.id,
            status.name(),
            now,
            end.summary,
            to_json(&end.logs),
            end.commit.as_ref().map(to_json),
            end.author.as_ref().map(to_json)
        ],
    )?;
    let find = "SELECT deployment FROM previews WHERE project = ?1 AND branch = ?2";
    let served_before: Option<Option<String>> =
        transaction.query_row(find, [&deployment.project, &deployment.branch], |row| row.get(0)).optional()?;
    let change = match end.outcome {
        DeploymentOutcome::Failed => PreviewChange::default(),
        DeploymentOutcome::Served(version) => {
            transaction.execute(
                "UPDATE previews SET version = ?3, deployment = ?4 WHERE project = ?1 AND branch = ?2",
                params![deployment.project, deployment.branch, version.to_string(), deployment.id],
            )?;
            PreviewChange { replaced_deployment: served_before.flatten(), is_removed: false }
        }
        // A later deployment of this branch that has not ended will check whether the branch exists.
        DeploymentOutcome::NoBranch => {
            let removed = transaction.execute(
                "DELETE FROM previews WHERE project = ?1 AND branch = ?2 AND NOT EXISTS (
                     SELECT 1 FROM deployments WHERE project = ?1 AND branch = ?2 AND ended IS NULL)",
                [&deployment.project, &deployment.branch],
            )?;
            let is_removed = removed > 0;
            PreviewChange { replaced_deployment: served_before.flatten().filter(|_| is_removed), is_removed }
        }
    };
    delete_old_deployments(transaction, &deployment.project)?;
    Ok(change)
}

/// Deletes the oldest deployments of a project that have ended and whose version is not served.
fn delete_old_deployments(transaction: &Transaction<'_>, project: &str) -> rusqlite::Result<()> {
    transaction
        .execute(
            "DELETE FROM deployments WHERE id IN (
                 SELECT id FROM deployments
                 WHERE project = ?1 AND ended IS NOT NULL
                   AND id NOT IN (SELECT deployment FROM previews WHERE deployment IS NOT NULL)
                 ORDER BY created DESC, id LIMIT -1 OFFSET ?2)",
            params![project, MAX_ENDED_DEPLOYMENTS],
        )
        .map(drop)
}

/// Deletes the previews of a project whose branch is not in `branches`, which were listed at the time `listed_at`, and
/// returns them. A preview with a deployment created since then, or with one that has not ended, stays: that deployment
/// will check whether the branch exists.
pub(super) fn delete_previews_without_branch(
    transaction: &Transaction<'_>,
    project: &str,
    branches: &BTreeSet<String>,
    listed_at: i64,
) -> rusqlite::Result<Vec<PreviewRow>> {
    let mut deleted = Vec::new();
    for preview in list_previews(transaction)?.into_iter().filter(|preview| preview.project == project) {
        if branches.contains(&preview.branch) {
            continue;
        }
        let removed = transaction.execute(
            "DELETE FROM previews WHERE project = ?1 AND branch = ?2 AND NOT EXISTS (
                 SELECT 1 FROM deployments
                 WHERE project = ?1 AND branch = ?2 AND (created >= ?3 OR ended IS NULL))",
            params![project, preview.branch, listed_at],
        )?;
        if removed > 0 {
            deleted.push(preview);
        }
    }
    Ok(deleted)
}

/// Whether a project has any preview.
pub(super) fn has_previews(connection: &Connection, project: &str) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM previews WHERE project = ?1)", [project], |row| row.get(0))
}

/// Returns all previews in the order of their creation.
pub(super) fn list_previews(connection: &Connection) -> rusqlite::Result<Vec<PreviewRow>> {
    let mut statement =
        connection.prepare("SELECT project, branch, slug, version, deployment FROM previews ORDER BY id")?;
    let from_row = |row: &Row<'_>| {
        let version: Option<String> = row.get("version")?;
        let version = version.and_then(|text| text.parse().ok());
        Ok(PreviewRow {
            project: row.get("project")?,
            branch: row.get("branch")?,
            slug: row.get("slug")?,
            served: version.zip(row.get("deployment")?),
        })
    };
    statement.query_map([], from_row)?.collect()
}

/// Marks deployments that were being built when the last process ended as failed. Returns the waiting ones, the oldest
/// first.
pub(super) fn resume_deployments(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<Vec<DeploymentRequest>> {
    transaction.execute(
        "UPDATE deployments SET status = 'failure', ended = ?1, summary = ?2 WHERE status = 'in_progress'",
        params![now, INTERRUPTED_SUMMARY],
    )?;
    let mut statement = transaction.prepare(
        "SELECT id, organization, project, branch, slug FROM deployments WHERE status = 'queued' ORDER BY created, id",
    )?;
    let from_row = |row: &Row<'_>| {
        Ok(DeploymentRequest {
            id: row.get("id")?,
            organization: row.get("organization")?,
            project: row.get("project")?,
            branch: row.get("branch")?,
            slug: row.get("slug")?,
        })
    };
    statement.query_map([], from_row)?.collect()
}

/// Returns a deployment as it was last stored.
pub(super) fn find_deployment(connection: &Connection, id: &str) -> rusqlite::Result<Option<Deployment>> {
    let from_row = |row: &Row<'_>| {
        let (logs, commit, author): (String, Option<String>, Option<String>) =
            (row.get("logs")?, row.get("commit_of")?, row.get("author")?);
        let ended: Option<i64> = row.get("ended")?;
        Ok(Deployment {
            id: row.get("id")?,
            organization: row.get("organization")?,
            project_id: row.get("project")?,
            created_at: format_millis(row.get("created")?),
            ended_at: ended.map(format_millis),
            status: DeploymentStatus::from_name(&row.get::<_, String>("status")?),
            summary: row.get("summary")?,
            logs: serde_json::from_str(&logs).unwrap_or_default(),
            subdomain: row.get("slug")?,
            author: author.and_then(|text| serde_json::from_str(&text).ok()),
            commit: commit.and_then(|text| serde_json::from_str(&text).ok()),
            source: DeploymentSource::Api,
        })
    };
    connection.query_row("SELECT * FROM deployments WHERE id = ?1", [id], from_row).optional()
}

/// Formats milliseconds since 1970 as clients read them.
fn format_millis(milliseconds: i64) -> String {
    format_unix_seconds(milliseconds.div_euclid(1000))
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("lists and structs of strings can always be serialized")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{Database, open_database};

    #[test]
    fn previews_of_deleted_branches_are_removed_unless_deployed_after_the_listing() {
        let dir = tempfile::tempdir().unwrap();
        let db = open_database(&dir.path().join("origin.db")).unwrap();
        let listed_at = 1000;
        // The branch, the time of its deployment, the end of that, and whether the preview stays.
        let rows = [
            ("listed", 1, Some(2), true),
            ("gone", 998, Some(999), false),
            ("deployed since", 1000, Some(1001), true),
            ("in the queue", 1, None, true),
        ];
        let deleted = db.write(move |transaction| {
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
            delete_previews_without_branch(transaction, "docs", &BTreeSet::from(["listed".to_owned()]), listed_at)
        });
        let deleted: Vec<String> = deleted.unwrap().into_iter().map(|preview| preview.branch).collect();
        let expected = rows.iter().filter(|(.., stays)| !stays).map(|(branch, ..)| (*branch).to_owned());
        assert_eq!(deleted, expected.collect::<Vec<_>>());
    }

    fn database() -> (tempfile::TempDir, Database) {
        let dir = tempfile::tempdir().unwrap();
        let db = open_database(&dir.path().join("origin.db")).unwrap();
        (dir, db)
    }

    fn waiting(project: &str, branch: &str, id: &str) -> DeploymentRequest {
        let text = str::to_owned;
        let slug = String::new();
        DeploymentRequest {
            id: text(id),
            organization: text("acme"),
            project: text(project),
            branch: text(branch),
            slug,
        }
    }

    fn deployment_end(outcome: DeploymentOutcome) -> DeploymentEnd {
        let commit = ApiCommit {
            sha: "1".to_owned(),
            branch: "main".to_owned(),
            message: "m".to_owned(),
            files_changed: super::super::deployment::FilesChanged::default(),
        };
        let author = ApiAuthor { name: "a".to_owned(), email: "a@b".to_owned() };
        DeploymentEnd {
            outcome,
            summary: "s".to_owned(),
            logs: vec!["l".to_owned()],
            commit: Some(commit),
            author: Some(author),
        }
    }

    fn version(text: &str) -> VersionId {
        VersionId(docwharf_base::model::digest::Digest::compute(text.as_bytes()))
    }

    #[test]
    fn a_preview_serves_the_last_successful_deployment_until_its_branch_is_deleted() {
        let (_dir, db) = database();
        let served = |id: &str| (false, Some(id.to_owned()));
        // The outcome of each deployment, the replaced deployment, whether the preview is removed, and the deployment
        // that it serves.
        let steps = [
            (DeploymentOutcome::Failed, None, (false, None)),
            (DeploymentOutcome::Served(version("1")), None, served("d1")),
            (DeploymentOutcome::Failed, None, served("d1")),
            (DeploymentOutcome::Served(version("3")), Some("d1"), served("d3")),
            (DeploymentOutcome::NoBranch, Some("d3"), (true, None)),
            (DeploymentOutcome::NoBranch, None, (true, None)),
        ];
        for (n, (outcome, replaced_deployment, (is_removed, expected))) in steps.into_iter().enumerate() {
            let deployment = waiting("docs", "Main", &format!("d{n}"));
            let change = db.write(move |transaction| {
                assert_eq!(insert_deployment(transaction, &deployment, 1)?, "main");
                mark_in_progress(transaction, &deployment.id)?;
                record_end(transaction, &deployment, &deployment_end(outcome), 2000)
            });
            assert_eq!(
                change.unwrap(),
                PreviewChange { replaced_deployment: replaced_deployment.map(str::to_owned), is_removed },
                "step {n}"
            );
            let all = db.read(list_previews).unwrap();
            assert_eq!(
                (all.is_empty(), db.read(|connection| has_previews(connection, "docs")).unwrap()),
                (is_removed, !is_removed)
            );
            let served_deployment = all.into_iter().next().and_then(|preview| preview.served).map(|(_, id)| id);
            assert_eq!(served_deployment, expected, "step {n}");
            let deployment = db.read(|connection| find_deployment(connection, &format!("d{n}"))).unwrap().unwrap();
            let status = if matches!(outcome, DeploymentOutcome::Served(_)) {
                DeploymentStatus::Success
            } else {
                DeploymentStatus::Failure
            };
            assert_eq!(
                (deployment.status, deployment.summary.as_deref(), &*deployment.logs),
                (status, Some("s"), &["l".to_owned()][..])
            );
            assert_eq!(deployment.ended_at.as_deref(), Some("1970-01-01T00:00:02Z"));
            assert_eq!(deployment.created_at, "1970-01-01T00:00:00Z");
            assert_eq!(
                (deployment.commit, deployment.author),
                (deployment_end(outcome).commit, deployment_end(outcome).author)
            );
        }
        assert!(!db.read(|connection| has_previews(connection, "other")).unwrap());
        assert!(db.read(|connection| find_deployment(connection, "d9")).unwrap().is_none());
    }

    #[test]
    fn a_preview_without_a_branch_is_not_removed_while_a_deployment_is_queued() {
        let (_dir, db) = database();
        let ended = db.write(|transaction| {
            let (first, second) = (waiting("docs", "b", "d1"), waiting("docs", "b", "d2"));
            insert_deployment(transaction, &first, 1)?;
            record_end(transaction, &first, &deployment_end(DeploymentOutcome::Served(version("1"))), 2)?;
            insert_deployment(transaction, &second, 3)?;
            insert_deployment(transaction, &waiting("docs", "b", "d3"), 4)?;
            let meanwhile = record_end(transaction, &second, &deployment_end(DeploymentOutcome::NoBranch), 5)?;
            Ok((meanwhile, list_previews(transaction)?.len()))
        });
        assert_eq!(ended.unwrap(), (PreviewChange { replaced_deployment: None, is_removed: false }, 1));
    }

    #[test]
    fn branches_with_the_same_normalized_name_get_distinct_stable_preview_slugs() {
        let (_dir, db) = database();
        let slugs = db.write(|transaction| {
            let requests = [("docs", "a/b", "1"), ("docs", "a.b", "2"), ("other", "a-b", "3"), ("docs", "a/b", "4")];
            requests
                .iter()
                .map(|(project, branch, id)| insert_deployment(transaction, &waiting(project, branch, id), 1))
                .collect()
        });
        let slugs: Vec<String> = slugs.unwrap();
        assert_eq!((&*slugs[0], &slugs[3]), ("a-b", &slugs[0]));
        assert!(slugs[1] != slugs[2] && slugs[1..3].iter().all(|slug| slug.starts_with("a-b-")), "{slugs:?}");
    }

    #[test]
    fn a_restart_fails_running_deployments_and_requeues_waiting_ones_oldest_first() {
        let (_dir, db) = database();
        let resumed = db.write(|transaction| {
            for (id, created) in [("late", 9), ("built", 1), ("early", 2), ("b", 2), ("done", 1)] {
                insert_deployment(transaction, &waiting("docs", id, id), created)?;
            }
            mark_in_progress(transaction, "built")?;
            record_end(
                transaction,
                &waiting("docs", "done", "done"),
                &deployment_end(DeploymentOutcome::Served(version("1"))),
                3,
            )?;
            resume_deployments(transaction, 5000)
        });
        let resumed: Vec<(String, String)> =
            resumed.unwrap().into_iter().map(|deployment| (deployment.id, deployment.slug)).collect();
        assert_eq!(resumed, ["b", "early", "late"].map(|id| (id.to_owned(), id.to_owned())));
        let status = |id: &str| {
            let deployment = db.read(|connection| find_deployment(connection, id)).unwrap().unwrap();
            (deployment.status, deployment.summary, deployment.ended_at)
        };
        let stopped =
            (DeploymentStatus::Failure, Some(INTERRUPTED_SUMMARY.to_owned()), Some("1970-01-01T00:00:05Z".to_owned()));
        assert_eq!(status("built"), stopped);
        assert_eq!(status("early"), (DeploymentStatus::Queued, None, None));
        assert_eq!(status("done").0, DeploymentStatus::Success);
    }

    #[test]
    fn the_oldest_deployments_of_a_project_are_deleted_unless_served_or_queued() {
        let (_dir, db) = database();
        let remaining = db.write(|transaction| {
            let other = waiting("other", "x", "other");
            insert_deployment(transaction, &other, 0)?;
            record_end(transaction, &other, &deployment_end(DeploymentOutcome::Failed), 0)?;
            for n in 0..104_i64 {
                let deployment = waiting("docs", if n == 0 { "shown" } else { "b" }, &format!("d{n:03}"));
                insert_deployment(transaction, &deployment, n)?;
                match n {
                    0 => drop(record_end(
                        transaction,
                        &deployment,
                        &deployment_end(DeploymentOutcome::Served(version("0"))),
                        n,
                    )?),
                    // This deployment is still waiting.
                    1 => {}
                    _ => drop(record_end(transaction, &deployment, &deployment_end(DeploymentOutcome::Failed), n)?),
                }
            }
            let mut rows = transaction.prepare("SELECT id FROM deployments ORDER BY id")?;
            rows.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
        });
        let newest = (4..104).map(|n| format!("d{n:03}"));
        let expected: Vec<String> = ["d000", "d001"].map(str::to_owned).into_iter().chain(newest).collect();
        assert_eq!(remaining.unwrap(), [&expected[..], &["other".to_owned()]].concat());
    }
}
