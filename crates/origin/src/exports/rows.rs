//! Rows of export jobs in the database. `tables.sql` describes the columns.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use docwharf_base::model::digest::Digest;

/// Maximum number of finished jobs deleted in one transaction, so that none takes long.
const MAX_DELETED_JOBS: usize = 500;

/// Request for an export.
#[derive(Debug, Clone)]
pub(super) struct ExportRequest {
    pub(super) organization: String,
    pub(super) project: String,
    pub(super) domain: String,
    pub(super) version: Option<String>,
    /// Requested pages; `None` is the whole site.
    pub(super) paths: Option<Vec<String>>,
}

/// The bundle of a completed job.
#[derive(Debug, Clone)]
pub(super) struct CompletedBundle {
    /// The kind of archive: `tar.gz`, `zip`, …
    pub(super) kind: String,
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

/// A job as stored in the database. Times are in milliseconds since 1970.
#[derive(Debug, Clone)]
pub(super) struct JobRow {
    pub(super) id: String,
    pub(super) request: ExportRequest,
    pub(super) status: String,
    pub(super) progress: u64,
    pub(super) pages: u64,
    pub(super) created: i64,
    pub(super) updated: i64,
    pub(super) error: Option<String>,
    pub(super) bundle: Option<CompletedBundle>,
}

/// Sizes of bundles in bytes; beyond them the oldest that may be removed are removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BundleByteLimits {
    pub(crate) organization: u64,
    pub(crate) total: u64,
}

const COLUMNS: &str = "id, organization, project, domain, version, paths, status, progress, pages, created, updated, error, kind, digest, bytes";

fn job_from_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let paths: Option<String> = row.get("paths")?;
    let bundle = match (row.get::<_, Option<String>>("kind")?, row.get::<_, Option<[u8; 32]>>("digest")?) {
        (Some(kind), Some(digest)) => {
            Some(CompletedBundle { kind, digest: Digest(digest), bytes: row.get::<_, i64>("bytes")?.unsigned_abs() })
        }
        _ => None,
    };
    Ok(JobRow {
        id: row.get("id")?,
        request: ExportRequest {
            organization: row.get("organization")?,
            project: row.get("project")?,
            domain: row.get("domain")?,
            version: row.get("version")?,
            // `insert` wrote it, so it can be parsed.
            paths: paths.and_then(|text| serde_json::from_str(&text).ok()),
        },
        status: row.get("status")?,
        progress: row.get::<_, i64>("progress")?.unsigned_abs(),
        pages: row.get::<_, i64>("pages")?.unsigned_abs(),
        created: row.get("created")?,
        updated: row.get("updated")?,
        error: row.get("error")?,
        bundle,
    })
}

/// Returns the job with this id.
pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<JobRow>> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?"))?
        .query_row([id], job_from_row)
        .optional()
}

/// Returns the number of waiting jobs of an organization, and of all.
pub(super) fn count_waiting(connection: &Connection, organization: &str) -> rusqlite::Result<(u64, u64)> {
    let sql = "SELECT coalesce(sum(organization = ?), 0), count(*) FROM jobs WHERE status = 'queued'";
    connection.prepare_cached(sql)?.query_row([organization], read_pair)
}

/// Returns the bytes of the bundles of an organization, and of all. With `(ended_after, now)`, only those count that
/// must not be removed: bundles of jobs that ended after `ended_after`, and those with a link that is valid after
/// `now`.
pub(super) fn bundle_bytes(
    connection: &Connection,
    organization: &str,
    times: Option<(i64, i64)>,
) -> rusqlite::Result<(u64, u64)> {
    let (ended_after, now) = times.unwrap_or((i64::MIN, i64::MIN));
    let sql = "SELECT coalesce(sum(bytes) FILTER (WHERE organization = ?1), 0), coalesce(sum(bytes), 0) FROM jobs \
               WHERE kind IS NOT NULL AND (updated > ?2 OR promised > ?3)";
    connection.prepare_cached(sql)?.query_row(params![organization, ended_after, now], read_pair)
}

fn read_pair(row: &Row<'_>) -> rusqlite::Result<(u64, u64)> {
    Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
}

/// Returns the number of jobs with each status.
pub(super) fn count_by_status(connection: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut rows = connection.prepare_cached("SELECT status, count(*) FROM jobs GROUP BY status")?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?.collect()
}

/// Inserts a waiting job.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    id: &str,
    request: &ExportRequest,
    now: i64,
) -> rusqlite::Result<()> {
    let paths = request.paths.as_ref().map(|paths| serde_json::Value::from(paths.clone()).to_string());
    transaction
        .prepare_cached(
            "INSERT INTO jobs (id, organization, project, domain, version, paths, status, created, updated) \
             VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
        )?
        .execute(params![id, request.organization, request.project, request.domain, request.version, paths, now, now])
        .map(drop)
}

/// Marks the next job as running and returns it. It belongs to the organization with the fewest running jobs; of
/// several such organizations, to the one whose last job was started longest ago. It is the oldest job of this
/// organization. Therefore, however many jobs one organization has, they delay the single job of another by at most one
/// job. `acquire_worker` returns a share of the workers if the organization may have one more; otherwise the next
/// organization is tried.
pub(super) fn start_next<T>(
    transaction: &Transaction<'_>,
    now: i64,
    mut acquire_worker: impl FnMut(&str) -> Option<T>,
) -> rusqlite::Result<Option<(JobRow, T)>> {
    let next = {
        let mut statement = transaction.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM jobs AS j WHERE number IN \
             (SELECT min(number) FROM jobs WHERE status = 'queued' GROUP BY organization) ORDER BY \
             (SELECT count(*) FROM jobs AS r WHERE r.status = 'running' AND r.organization = j.organization), \
             (SELECT coalesce(max(t.taken), 0) FROM jobs AS t WHERE t.organization = j.organization), number"
        ))?;
        let mut rows = statement.query([])?;
        loop {
            let Some(row) = rows.next()? else { break None };
            let job = job_from_row(row)?;
            if let Some(worker) = acquire_worker(&job.request.organization) {
                break Some((job, worker));
            }
        }
    };
    if let Some((job, _)) = &next {
        // A counter and not the time, because the clock may be set back.
        transaction.execute(
            "UPDATE jobs SET status = 'running', updated = ?, taken = (SELECT coalesce(max(taken), 0) + 1 FROM jobs) \
             WHERE id = ?",
            params![now, job.id],
        )?;
    }
    Ok(next)
}

/// Retains a job at least until `until`, the time at which a link to its bundle expires.
pub(super) fn retain_until(transaction: &Transaction<'_>, id: &str, until: i64) -> rusqlite::Result<()> {
    transaction.execute("UPDATE jobs SET promised = max(promised, ?) WHERE id = ?", params![until, id]).map(drop)
}

/// Marks a job as completed, with its bundle.
pub(super) fn mark_completed(
    transaction: &Transaction<'_>,
    id: &str,
    bundle: &CompletedBundle,
    pages: u64,
    now: i64,
) -> rusqlite::Result<()> {
    transaction
        .execute(
            "UPDATE jobs SET status = 'completed', progress = 100, pages = ?, updated = ?, kind = ?, digest = ?, bytes = ? \
             WHERE id = ?",
            params![pages.cast_signed(), now, bundle.kind, bundle.digest.0, bundle.bytes.cast_signed(), id],
        )
        .map(drop)
}

/// Marks a job as failed, with the progress that it had reached.
pub(super) fn mark_failed(
    transaction: &Transaction<'_>,
    id: &str,
    reason: &str,
    (progress, pages): (u64, u64),
    now: i64,
) -> rusqlite::Result<()> {
    transaction
        .execute(
            "UPDATE jobs SET status = 'failed', error = ?, progress = ?, pages = ?, updated = ? WHERE id = ?",
            params![reason, progress.cast_signed(), pages.cast_signed(), now, id],
        )
        .map(drop)
}

/// Marks the jobs that were running when the last process ended as failed. Returns their number.
pub(super) fn fail_running(transaction: &Transaction<'_>, reason: &str, now: i64) -> rusqlite::Result<usize> {
    transaction.execute(
        "UPDATE jobs SET status = 'failed', error = ?, updated = ? WHERE status = 'running'",
        params![reason, now],
    )
}

/// Returns the file names of all bundles that belong to a job.
pub(super) fn bundle_file_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut rows = connection.prepare("SELECT id, kind FROM jobs WHERE kind IS NOT NULL")?;
    rows.query_map([], |row| Ok(bundle_file_name(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?)))?.collect()
}

/// Returns the file name of a bundle.
pub(super) fn bundle_file_name(id: &str, kind: &str) -> String {
    format!("{id}.{kind}")
}

/// Whether a bundle may have this file name.
pub(super) fn is_bundle_file_name(name: &str) -> bool {
    let is_id = |id: &str| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix("se_")
        .and_then(|name| name.split_once('.'))
        .is_some_and(|(id, kind)| is_id(id) && !kind.is_empty())
}

/// Deletes finished jobs: those beyond the newest `max_jobs_per_project` of each project, where failed jobs are counted
/// separately; and the oldest beyond `max_bytes` of bundles of an organization or of all. Three kinds of jobs stay: a
/// project's newest bundle of the whole site and its newest bundle of some pages; jobs that ended after `ended_after`;
/// and jobs with a link that is valid after `now`. Returns the names of the files to remove.
pub(super) fn delete_old_jobs(
    transaction: &Transaction<'_>,
    max_jobs_per_project: usize,
    max_bytes: BundleByteLimits,
    ended_after: i64,
    now: i64,
) -> rusqlite::Result<Vec<String>> {
    let deleted = {
        let mut rows = transaction.prepare_cached(
            "SELECT id, kind, coalesce(bytes, 0), \
             row_number() OVER (PARTITION BY project, kind IS NULL ORDER BY number DESC), \
             row_number() OVER (PARTITION BY project, kind IS NULL, paths IS NULL ORDER BY number DESC), \
             updated > ?1 OR promised > ?2, organization \
             FROM jobs WHERE status IN ('completed', 'failed') ORDER BY number DESC",
        )?;
        let (mut total_bytes, mut deleted) = (0_u64, Vec::new());
        let mut bytes_by_organization: HashMap<String, u64> = HashMap::new();
        let mut rows = rows.query([ended_after, now])?;
        while let Some(row) = rows.next()? {
            let (id, kind): (String, Option<String>) = (row.get(0)?, row.get(1)?);
            let size = row.get::<_, i64>(2)?.unsigned_abs();
            let is_needed = row.get(5)? || kind.is_some() && row.get::<_, u32>(4)? == 1;
            let own_bytes = bytes_by_organization.entry(row.get(6)?).or_default();
            let is_too_large =
                size > 0 && (total_bytes + size > max_bytes.total || *own_bytes + size > max_bytes.organization);
            if !is_needed && (row.get::<_, u32>(3)? as usize > max_jobs_per_project || is_too_large) {
                deleted.push((id, kind));
            } else {
                total_bytes += size;
                *own_bytes += size;
            }
        }
        deleted.truncate(MAX_DELETED_JOBS);
        deleted
    };
    for (id, _) in &deleted {
        transaction.execute("DELETE FROM jobs WHERE id = ?", [id])?;
    }
    Ok(deleted.into_iter().filter_map(|(id, kind)| Some(bundle_file_name(&id, &kind?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{Database, open_database};
    use crate::limits::{OriginLimits, SharedResource};
    use crate::resource_pools::ResourcePools;

    fn database() -> (tempfile::TempDir, Database) {
        let dir = tempfile::tempdir().unwrap();
        let db = open_database(&dir.path().join("origin.db")).unwrap();
        (dir, db)
    }

    fn request(organization: &str, paths: Option<Vec<String>>) -> ExportRequest {
        ExportRequest {
            organization: organization.to_owned(),
            project: organization.to_owned(),
            domain: format!("{organization}.example"),
            version: None,
            paths,
        }
    }

    // Regression: many jobs of one organization delayed the job of another one until the last of them was completed.
    #[test]
    fn export_jobs_of_different_organizations_are_started_in_turn() {
        let (_dir, db) = database();
        let order = db.write(|transaction| {
            for (id, organization) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("a4", "a"), ("b2", "b")] {
                insert(transaction, id, &request(organization, None), 0)?;
            }
            let mut order = Vec::new();
            while let Some((job, ())) = start_next(transaction, 0, |_| Some(()))? {
                mark_failed(transaction, &job.id, "x", (0, 0), 0)?;
                order.push(job.id);
            }
            Ok(order)
        });
        assert_eq!(order.unwrap(), ["a1", "b1", "a2", "b2", "a3", "a4"]);
    }

    #[test]
    fn the_last_worker_is_not_given_to_an_organization_with_a_running_export_job() {
        let (_dir, db) = database();
        let order = db.write(|transaction| {
            for (id, organization) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
                insert(transaction, id, &request(organization, None), 0)?;
            }
            let pools = ResourcePools::new(OriginLimits::default(), 2);
            let start_next = || {
                start_next(transaction, 0, |organization| {
                    pools.pool(SharedResource::Workers).acquire_from_queue(organization)
                })
            };
            let first = start_next()?.map(|(job, worker)| (job.id, worker));
            let second = start_next()?.map(|(job, worker)| (job.id, worker));
            let third = start_next()?.map(|(job, _)| job.id);
            let names = [&first, &second].map(|started| started.as_ref().map(|(id, _)| id.clone()));
            // `a` may start another job after the end of its first one.
            drop(first);
            let fourth = start_next()?.map(|(job, _)| job.id);
            Ok((names, third, fourth))
        });
        let [first, second] = [Some("a1".to_owned()), Some("b1".to_owned())];
        assert_eq!(order.unwrap(), ([first, second], None, Some("a2".to_owned())));
    }

    // Regression: an origin removed jobs while links to their bundles were valid.
    #[test]
    fn cleanup_deletes_old_export_jobs_except_linked_ones_and_the_latest_full_bundle() {
        let (_dir, db) = database();
        let bundle = |bytes| CompletedBundle { kind: "tar.gz".to_owned(), digest: Digest::compute(b"x"), bytes };
        let unlimited = BundleByteLimits { organization: u64::MAX, total: u64::MAX };
        let files = db.write(move |transaction| {
            insert(transaction, "whole", &request("a", None), 0)?;
            mark_completed(transaction, "whole", &bundle(10), 1, 100)?;
            for (id, updated) in [("part1", 100), ("linked", 100), ("part2", 100), ("part3", 100), ("young", 900)] {
                insert(transaction, id, &request("a", Some(vec!["/".to_owned()])), 0)?;
                mark_completed(transaction, id, &bundle(10), 1, updated)?;
            }
            retain_until(transaction, "linked", 2000)?;
            // A later link that expires earlier takes nothing from an earlier one.
            retain_until(transaction, "linked", 600)?;
            for id in ["f1", "f2", "f3"] {
                insert(transaction, id, &request("a", None), 0)?;
                mark_failed(transaction, id, "x", (0, 0), 100)?;
            }
            delete_old_jobs(transaction, 2, unlimited, 500, 1000)
        });
        assert_eq!(
            files.unwrap(),
            ["part2.tar.gz", "part1.tar.gz"],
            "the newest two jobs, the young one, the linked one and the newest of the whole site stay"
        );
        let exists = |id: &'static str| db.read(|connection| find(connection, id)).unwrap().is_some();
        assert_eq!(["f1", "f2", "f3"].map(exists), [false, true, true], "failed jobs are counted separately");
        let bytes = db.read(|connection| bundle_bytes(connection, "a", None)).unwrap();
        let stay = db.read(|connection| bundle_bytes(connection, "a", Some((500, 1000)))).unwrap();
        assert_eq!((bytes, stay), ((40, 40), (20, 20)), "the young one and the linked one must not be removed");
        let other_bytes = |transaction: &Transaction<'_>| bundle_bytes(transaction, "b", None);
        assert_eq!(db.write(other_bytes).unwrap(), (0, 40));
        for exact in [
            BundleByteLimits { organization: 20, total: u64::MAX },
            BundleByteLimits { organization: u64::MAX, total: 20 },
        ] {
            let deleted = db.write(move |transaction| delete_old_jobs(transaction, 9, exact, 500, 1000));
            assert_eq!(deleted.unwrap(), [""; 0], "a limit that is reached is not exceeded: {exact:?}");
        }
        let max_bytes = BundleByteLimits { organization: 15, total: u64::MAX };
        let deleted = db.write(move |transaction| {
            transaction.execute_batch("SAVEPOINT x")?;
            let deleted = delete_old_jobs(transaction, 9, max_bytes, 500, 1000)?;
            transaction.execute_batch("ROLLBACK TO x; RELEASE x")?;
            Ok(deleted)
        });
        assert_eq!(deleted.unwrap(), ["part3.tar.gz"], "the limit of the organization is exceeded");
        let max_bytes = BundleByteLimits { organization: u64::MAX, total: 15 };
        let files = db.write(move |transaction| delete_old_jobs(transaction, 9, max_bytes, 500, 1000));
        assert_eq!(files.unwrap(), ["part3.tar.gz"], "the total limit is exceeded: the oldest job that may be removed");
    }

    #[test]
    fn bundle_bytes_of_one_organization_do_not_count_toward_the_limit_of_another() {
        let (_dir, db) = database();
        let deleted = db.write(|transaction| {
            for (id, organization) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")] {
                insert(transaction, id, &request(organization, Some(vec!["/".to_owned()])), 0)?;
                let bundle = CompletedBundle { kind: "zip".to_owned(), digest: Digest::compute(b"x"), bytes: 10 };
                mark_completed(transaction, id, &bundle, 1, 100)?;
            }
            let max_bytes = |organization| BundleByteLimits { organization, total: u64::MAX };
            let within = delete_old_jobs(transaction, 9, max_bytes(20), 500, 1000)?;
            Ok((within, delete_old_jobs(transaction, 9, max_bytes(19), 500, 1000)?))
        });
        let beyond = ["b1.zip", "a1.zip"].map(str::to_owned).to_vec();
        assert_eq!(deleted.unwrap(), (Vec::new(), beyond), "the oldest of each that is above its own limit");
    }

    #[test]
    fn bundle_file_names_consist_of_an_export_job_id_and_an_extension() {
        for (name, expected) in [
            ("se_0123456789abcdef.tar.gz", true),
            ("se_0123456789abcdef.zip", true),
            ("se_0123456789abcde.zip", false),
            ("se_0123456789abcdef0.zip", false),
            ("se_0123456789abcdeg.zip", false),
            ("se_backup.zip", false),
            ("se_0123456789abcdef", false),
            ("se_0123456789abcdef.", false),
            ("dp_0123456789abcdef.zip", false),
            ("notes.txt", false),
        ] {
            assert_eq!(is_bundle_file_name(name), expected, "{name}");
        }
        assert!(is_bundle_file_name(&bundle_file_name("se_0123456789abcdef", "tar.zst")));
    }

    #[test]
    fn a_job_that_fails_keeps_what_it_had_reached_and_a_restart_fails_only_those_that_ran() {
        let (_dir, db) = database();
        let failed = db.write(|transaction| {
            for id in ["ended", "ran", "waits"] {
                insert(transaction, id, &request("a", None), 1)?;
            }
            mark_failed(transaction, "ended", "why", (40, 3), 7)?;
            start_next(transaction, 8, |_| Some(()))?;
            fail_running(transaction, "stopped", 9)
        });
        assert_eq!(failed.unwrap(), 1);
        for (id, status, error, reached, updated) in [
            ("ended", "failed", Some("why"), (40, 3), 7),
            ("ran", "failed", Some("stopped"), (0, 0), 9),
            ("waits", "queued", None, (0, 0), 1),
        ] {
            let job = db.read(|connection| find(connection, id)).unwrap().unwrap();
            assert_eq!((job.status.as_str(), job.error.as_deref()), (status, error), "{id}");
            assert_eq!(((job.progress, job.pages), job.created, job.updated), (reached, 1, updated), "{id}");
        }
    }
}
