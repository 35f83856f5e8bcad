//! Rows of export jobs in the database.

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
    pub(super) asked: ExportRequest,
    pub(super) status: String,
    pub(super) progress: u64,
    pub(super) pages: u64,
    pub(super) created: i64,
    pub(super) updated: i64,
    pub(super) error: Option<String>,
    pub(super) made: Option<CompletedBundle>,
}

/// Sizes of bundles in bytes; beyond them the oldest that may be removed are removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BundleByteLimits {
    pub(crate) organization: u64,
    pub(crate) total: u64,
}

const COLUMNS: &str = "id, organization, project, domain, version, paths, status, progress, pages, created, updated, error, kind, digest, bytes";

fn job(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let paths: Option<String> = row.get("paths")?;
    let made = match (row.get::<_, Option<String>>("kind")?, row.get::<_, Option<[u8; 32]>>("digest")?) {
        (Some(kind), Some(digest)) => {
            Some(CompletedBundle { kind, digest: Digest(digest), bytes: row.get::<_, i64>("bytes")?.unsigned_abs() })
        }
        _ => None,
    };
    Ok(JobRow {
        id: row.get("id")?,
        asked: ExportRequest {
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
        made,
    })
}

/// Returns the job with this id.
pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<JobRow>> {
    connection.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?"))?.query_row([id], job).optional()
}

/// Returns the number of waiting jobs of an organization, and of all.
pub(super) fn waiting(connection: &Connection, organization: &str) -> rusqlite::Result<(u64, u64)> {
    let sql = "SELECT coalesce(sum(organization = ?), 0), count(*) FROM jobs WHERE status = 'queued'";
    connection.prepare_cached(sql)?.query_row([organization], two)
}

/// Returns the bytes of the bundles of an organization, and of all; with `(young, now)`, only of those that may not be
/// removed.
pub(super) fn bundle_bytes(
    connection: &Connection,
    organization: &str,
    times: Option<(i64, i64)>,
) -> rusqlite::Result<(u64, u64)> {
    let (young, now) = times.unwrap_or((i64::MIN, i64::MIN));
    let sql = "SELECT coalesce(sum(bytes) FILTER (WHERE organization = ?1), 0), coalesce(sum(bytes), 0) FROM jobs \
               WHERE kind IS NOT NULL AND (updated > ?2 OR promised > ?3)";
    connection.prepare_cached(sql)?.query_row(params![organization, young, now], two)
}

fn two(row: &Row<'_>) -> rusqlite::Result<(u64, u64)> {
    Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
}

/// Returns the number of jobs in each state.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut rows = connection.prepare_cached("SELECT status, count(*) FROM jobs GROUP BY status")?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?.collect()
}

/// Inserts a waiting job.
pub(super) fn insert(transaction: &Transaction<'_>, id: &str, asked: &ExportRequest, now: i64) -> rusqlite::Result<()> {
    let paths = asked.paths.as_ref().map(|paths| serde_json::Value::from(paths.clone()).to_string());
    transaction
        .prepare_cached(
            "INSERT INTO jobs (id, organization, project, domain, version, paths, status, created, updated) \
             VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
        )?
        .execute(params![id, asked.organization, asked.project, asked.domain, asked.version, paths, now, now])
        .map(drop)
}

/// Marks the next job as running and returns it. It is a job of the organization with the fewest running jobs; of
/// several, of the one whose last turn is longest ago; and there the oldest. So many jobs of one organization delay the
/// single job of another by at most one. `turn` returns a share of the workers if the organization may have one more;
/// otherwise the next organization is tried.
pub(super) fn take<T>(
    transaction: &Transaction<'_>,
    now: i64,
    mut turn: impl FnMut(&str) -> Option<T>,
) -> rusqlite::Result<Option<(JobRow, T)>> {
    let next = {
        let mut first = transaction.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM jobs AS j WHERE number IN \
             (SELECT min(number) FROM jobs WHERE status = 'queued' GROUP BY organization) ORDER BY \
             (SELECT count(*) FROM jobs AS r WHERE r.status = 'running' AND r.organization = j.organization), \
             (SELECT coalesce(max(t.taken), 0) FROM jobs AS t WHERE t.organization = j.organization), number"
        ))?;
        let mut rows = first.query([])?;
        loop {
            let Some(row) = rows.next()? else { break None };
            let job = job(row)?;
            if let Some(turn) = turn(&job.asked.organization) {
                break Some((job, turn));
            }
        }
    };
    if let Some((job, _)) = &next {
        // A counter and not the time, because the clock may go back.
        transaction.execute(
            "UPDATE jobs SET status = 'running', updated = ?, taken = (SELECT coalesce(max(taken), 0) + 1 FROM jobs) \
             WHERE id = ?",
            params![now, job.id],
        )?;
    }
    Ok(next)
}

/// Keeps a job at least until `until`.
pub(super) fn promise(transaction: &Transaction<'_>, id: &str, until: i64) -> rusqlite::Result<()> {
    transaction.execute("UPDATE jobs SET promised = max(promised, ?) WHERE id = ?", params![until, id]).map(drop)
}

/// Marks a job as completed, with its bundle.
pub(super) fn complete(
    transaction: &Transaction<'_>,
    id: &str,
    made: &CompletedBundle,
    pages: u64,
    now: i64,
) -> rusqlite::Result<()> {
    transaction
        .execute(
            "UPDATE jobs SET status = 'completed', progress = 100, pages = ?, updated = ?, kind = ?, digest = ?, bytes = ? \
             WHERE id = ?",
            params![pages.cast_signed(), now, made.kind, made.digest.0, made.bytes.cast_signed(), id],
        )
        .map(drop)
}

/// Marks a job as failed, with the progress that it had reached.
pub(super) fn fail(
    transaction: &Transaction<'_>,
    id: &str,
    why: &str,
    (progress, pages): (u64, u64),
    now: i64,
) -> rusqlite::Result<()> {
    transaction
        .execute(
            "UPDATE jobs SET status = 'failed', error = ?, progress = ?, pages = ?, updated = ? WHERE id = ?",
            params![why, progress.cast_signed(), pages.cast_signed(), now, id],
        )
        .map(drop)
}

/// Marks the jobs that were running when the last process ended as failed. Returns their number.
pub(super) fn abandon(transaction: &Transaction<'_>, why: &str, now: i64) -> rusqlite::Result<usize> {
    transaction.execute(
        "UPDATE jobs SET status = 'failed', error = ?, updated = ? WHERE status = 'running'",
        params![why, now],
    )
}

/// Returns the file names of all bundles that belong to a job.
pub(super) fn bundles(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut rows = connection.prepare("SELECT id, kind FROM jobs WHERE kind IS NOT NULL")?;
    rows.query_map([], |row| Ok(file_name(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?)))?.collect()
}

/// Returns the file name of a bundle.
pub(super) fn file_name(id: &str, kind: &str) -> String {
    format!("{id}.{kind}")
}

/// Whether a bundle may have this file name.
pub(super) fn is_file_name(name: &str) -> bool {
    let is_id = |id: &str| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix("se_")
        .and_then(|name| name.split_once('.'))
        .is_some_and(|(id, kind)| is_id(id) && !kind.is_empty())
}

/// Deletes finished jobs: those beyond the newest `keep` of each project, where failed jobs are counted apart; and the
/// oldest beyond `most` bytes of bundles of an organization or of all. Three kinds of jobs stay: a project's newest
/// bundle of the whole site and its newest bundle of some pages; jobs that ended after `young`; and jobs with a link
/// that is valid after `now`. Returns the names of the files to remove.
pub(super) fn forget(
    transaction: &Transaction<'_>,
    keep: usize,
    most: BundleByteLimits,
    young: i64,
    now: i64,
) -> rusqlite::Result<Vec<String>> {
    let old = {
        let mut rows = transaction.prepare_cached(
            "SELECT id, kind, coalesce(bytes, 0), \
             row_number() OVER (PARTITION BY project, kind IS NULL ORDER BY number DESC), \
             row_number() OVER (PARTITION BY project, kind IS NULL, paths IS NULL ORDER BY number DESC), \
             updated > ?1 OR promised > ?2, organization \
             FROM jobs WHERE status IN ('completed', 'failed') ORDER BY number DESC",
        )?;
        let (mut held, mut old) = (0_u64, Vec::new());
        let mut each: HashMap<String, u64> = HashMap::new();
        let mut rows = rows.query([young, now])?;
        while let Some(row) = rows.next()? {
            let (id, kind): (String, Option<String>) = (row.get(0)?, row.get(1)?);
            let size = row.get::<_, i64>(2)?.unsigned_abs();
            let is_needed = row.get(5)? || kind.is_some() && row.get::<_, u32>(4)? == 1;
            let own = each.entry(row.get(6)?).or_default();
            let is_too_large = size > 0 && (held + size > most.total || *own + size > most.organization);
            if !is_needed && (row.get::<_, u32>(3)? as usize > keep || is_too_large) {
                old.push((id, kind));
            } else {
                held += size;
                *own += size;
            }
        }
        old.truncate(MAX_DELETED_JOBS);
        old
    };
    for (id, _) in &old {
        transaction.execute("DELETE FROM jobs WHERE id = ?", [id])?;
    }
    Ok(old.into_iter().filter_map(|(id, kind)| Some(file_name(&id, &kind?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use crate::limits::{OriginLimits, SharedResource};
    use crate::shares::ResourcePools;

    fn database() -> (tempfile::TempDir, Database) {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(&dir.path().join("origin.db")).unwrap();
        (dir, db)
    }

    fn asked(organization: &str, paths: Option<Vec<String>>) -> ExportRequest {
        ExportRequest {
            organization: organization.to_owned(),
            project: organization.to_owned(),
            domain: format!("{organization}.example"),
            version: None,
            paths,
        }
    }

    #[test]
    fn somebodys_one_job_waits_for_one_of_anothers_many_at_most() {
        let (_dir, db) = database();
        let order = db.run_writer(|transaction| {
            for (id, whose) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("a4", "a"), ("b2", "b")] {
                insert(transaction, id, &asked(whose, None), 0)?;
            }
            let mut order = Vec::new();
            while let Some((job, ())) = take(transaction, 0, |_| Some(()))? {
                fail(transaction, &job.id, "x", (0, 0), 0)?;
                order.push(job.id);
            }
            Ok(order)
        });
        assert_eq!(order.unwrap(), ["a1", "b1", "a2", "b2", "a3", "a4"]);
    }

    #[test]
    fn a_worker_that_is_left_for_others_passes_over_whoever_has_one() {
        let (_dir, db) = database();
        let order = db.run_writer(|transaction| {
            for (id, whose) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
                insert(transaction, id, &asked(whose, None), 0)?;
            }
            let shares = ResourcePools::new(OriginLimits::default(), 2);
            let take = || take(transaction, 0, |whose| shares.pool(SharedResource::Workers).take_turn(whose));
            let first = take()?.map(|(job, turn)| (job.id, turn));
            let second = take()?.map(|(job, turn)| (job.id, turn));
            let third = take()?.map(|(job, _)| job.id);
            let names = [&first, &second].map(|taken| taken.as_ref().map(|(id, _)| id.clone()));
            // Acme may go on once its first job is done.
            drop(first);
            let fourth = take()?.map(|(job, _)| job.id);
            Ok((names, third, fourth))
        });
        let [first, second] = [Some("a1".to_owned()), Some("b1".to_owned())];
        assert_eq!(order.unwrap(), ([first, second], None, Some("a2".to_owned())));
    }

    #[test]
    fn what_is_forgotten_is_old_and_neither_promised_nor_a_projects_last_whole_bundle() {
        let (_dir, db) = database();
        let made = |bytes| CompletedBundle { kind: "tar.gz".to_owned(), digest: Digest::of(b"x"), bytes };
        let all = BundleByteLimits { organization: u64::MAX, total: u64::MAX };
        let files = db.run_writer(move |transaction| {
            insert(transaction, "whole", &asked("a", None), 0)?;
            complete(transaction, "whole", &made(10), 1, 100)?;
            for (id, updated) in [("part1", 100), ("linked", 100), ("part2", 100), ("part3", 100), ("young", 900)] {
                insert(transaction, id, &asked("a", Some(vec!["/".to_owned()])), 0)?;
                complete(transaction, id, &made(10), 1, updated)?;
            }
            promise(transaction, "linked", 2000)?;
            for id in ["f1", "f2", "f3"] {
                insert(transaction, id, &asked("a", None), 0)?;
                fail(transaction, id, "x", (0, 0), 100)?;
            }
            forget(transaction, 2, all, 500, 1000)
        });
        assert_eq!(files.unwrap(), ["part2.tar.gz", "part1.tar.gz"], "the newest two, young, linked and whole stay");
        let is_there = |id: &'static str| db.read(|connection| find(connection, id)).unwrap().is_some();
        assert_eq!(["f1", "f2", "f3"].map(is_there), [false, true, true], "failures are counted apart");
        let bytes = db.read(|connection| bundle_bytes(connection, "a", None)).unwrap();
        let stay = db.read(|connection| bundle_bytes(connection, "a", Some((500, 1000)))).unwrap();
        assert_eq!((bytes, stay), ((40, 40), (20, 20)), "the young one and the linked one stay in any case");
        let two = |transaction: &Transaction<'_>| bundle_bytes(transaction, "b", None);
        assert_eq!(db.run_writer(two).unwrap(), (0, 40));
        let most = BundleByteLimits { organization: 15, total: u64::MAX };
        let kept = db.run_writer(move |transaction| {
            transaction.execute_batch("SAVEPOINT x")?;
            let gone = forget(transaction, 9, most, 500, 1000)?;
            transaction.execute_batch("ROLLBACK TO x; RELEASE x")?;
            Ok(gone)
        });
        assert_eq!(kept.unwrap(), ["part3.tar.gz"], "beyond so many bytes of one organization");
        let most = BundleByteLimits { organization: u64::MAX, total: 15 };
        let files = db.run_writer(move |transaction| forget(transaction, 9, most, 500, 1000));
        assert_eq!(files.unwrap(), ["part3.tar.gz"], "beyond so many bytes the oldest that may go");
    }
}
