//! The rows of a day in the database: adding counts, and deleting days.

use rusqlite::{Connection, OptionalExtension, params};

use crate::database::{Database, DatabaseError};
use docwharf_base::model::reader_activity::{DayActivity, ViewCounts};

/// The key of all counts that have no row of their own, because their day has too many keys.
pub const OTHER_KEY: &str = "(other)";
/// The number of pages of a day that are stored under their own key: of those that were viewed, and of those with which
/// visits began. A site rarely has more, but a day may see several versions of it.
const MAX_DAY_PAGES: u64 = 100_000;
/// The number of hosts, of paths that do not exist, and of names of programs of a day that are stored under their own
/// key. Clients choose them, so they would fill the disk.
const MAX_DAY_KEYS: u64 = 1_000;
/// The number of rows that one transaction removes. Other changes wait for it.
const MAX_ROWS_PER_DELETE: u64 = 10_000;

/// The kind of a row of the table `day_counts`. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountKind {
    Referrer = 1,
    Entry = 2,
    NotFound = 3,
    Agent = 4,
}

impl CountKind {
    /// Returns the number that is stored.
    pub(crate) fn number(self) -> i64 {
        self as i64
    }
}

/// Adds the counts of a day to its rows, in a transaction of the caller. A key that has a row on that day always counts
/// under itself. A new key gets a row if the day has few enough of its kind; otherwise it counts as [`OTHER_KEY`].
pub fn add_day(connection: &Connection, project: &str, activity: &DayActivity) -> rusqlite::Result<()> {
    let DayActivity { day, views, entries, referrers, not_found, agents } = activity;
    let writer = DayWriter { connection, project, day: *day };
    writer.add_views(views)?;
    writer.add_counts(CountKind::Entry, MAX_DAY_PAGES, entries)?;
    writer.add_counts(CountKind::Referrer, MAX_DAY_KEYS, referrers)?;
    writer.add_counts(CountKind::NotFound, MAX_DAY_KEYS, not_found)?;
    writer.add_counts(CountKind::Agent, MAX_DAY_KEYS, agents)
}

/// Adds counts to the rows of a day.
#[derive(Debug, Clone, Copy)]
struct DayWriter<'a> {
    connection: &'a Connection,
    project: &'a str,
    day: i64,
}

impl DayWriter<'_> {
    fn add_views(self, views: &[(String, ViewCounts)]) -> rusqlite::Result<()> {
        let sql = "INSERT INTO views (project, day, path, human, ai, bot) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                   ON CONFLICT (project, day, path) DO UPDATE
                   SET human = human + excluded.human, ai = ai + excluded.ai, bot = bot + excluded.bot";
        let mut insert = self.connection.prepare_cached(sql)?;
        let mut keys = DayKeys { writer: self, kind: None, max: MAX_DAY_PAGES, len: None };
        for (path, counts) in views {
            let [human, ai, bot] = [counts.human, counts.ai, counts.bot].map(u64::cast_signed);
            insert.execute(params![self.project, self.day, keys.choose(path)?, human, ai, bot])?;
        }
        Ok(())
    }

    fn add_counts(self, kind: CountKind, max_keys: u64, counts: &[(String, u64)]) -> rusqlite::Result<()> {
        let sql = "INSERT INTO day_counts (project, day, kind, key, count) VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT (project, day, kind, key) DO UPDATE SET count = count + excluded.count";
        let mut insert = self.connection.prepare_cached(sql)?;
        let mut keys = DayKeys { writer: self, kind: Some(kind), max: max_keys, len: None };
        for (key, count) in counts {
            let (key, count) = (keys.choose(key)?, count.cast_signed());
            insert.execute(params![self.project, self.day, kind.number(), key, count])?;
        }
        Ok(())
    }
}

/// Returns the number of a key to which a row of `day` refers. Creates the key if necessary.
pub(crate) fn store_key(connection: &Connection, text: &str, day: i64) -> rusqlite::Result<i64> {
    // Most keys are used on this day already, and then nothing has to be written.
    let sql = "SELECT id FROM view_keys WHERE text = ?1 AND last_day >= ?2";
    let mut select = connection.prepare_cached(sql)?;
    if let Some(id) = select.query_row(params![text, day], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    let sql = "INSERT INTO view_keys (text, last_day) VALUES (?1, ?2)
               ON CONFLICT (text) DO UPDATE SET last_day = excluded.last_day RETURNING id";
    connection.prepare_cached(sql)?.query_row(params![text, day], |row| row.get(0))
}

/// The keys of one kind that have a row on a day. Their number is bounded.
#[derive(Debug)]
struct DayKeys<'a> {
    writer: DayWriter<'a>,
    /// The kind in the table `day_counts`; `None` for the table `views`.
    kind: Option<CountKind>,
    /// The largest number of keys, without [`OTHER_KEY`].
    max: u64,
    /// The number of keys, without [`OTHER_KEY`]; `None` until it is needed.
    len: Option<u64>,
}

impl DayKeys<'_> {
    /// Returns the number of the key under which `text` is counted.
    fn choose(&mut self, text: &str) -> rusqlite::Result<i64> {
        let DayWriter { connection, day, .. } = self.writer;
        if text != OTHER_KEY && !self.contains(text)? {
            let len = self.len.map_or_else(|| self.count(), Ok)?;
            if len >= self.max {
                self.len = Some(len);
                return store_key(connection, OTHER_KEY, day);
            }
            self.len = Some(len + 1);
        }
        store_key(connection, text, day)
    }

    fn contains(&self, text: &str) -> rusqlite::Result<bool> {
        let DayWriter { connection, project, day } = self.writer;
        if let Some(kind) = self.kind {
            let sql = "SELECT EXISTS (SELECT 1 FROM day_counts WHERE project = ?1 AND day = ?2 AND kind = ?3
                       AND key = (SELECT id FROM view_keys WHERE text = ?4))";
            let values = params![project, day, kind.number(), text];
            connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))
        } else {
            let sql = "SELECT EXISTS (SELECT 1 FROM views WHERE project = ?1 AND day = ?2
                       AND path = (SELECT id FROM view_keys WHERE text = ?3))";
            connection.prepare_cached(sql)?.query_row(params![project, day, text], |row| row.get(0))
        }
    }

    fn count(&self) -> rusqlite::Result<u64> {
        let DayWriter { connection, project, day } = self.writer;
        let count: i64 = if let Some(kind) = self.kind {
            let sql = "SELECT count(*) FROM day_counts WHERE project = ?1 AND day = ?2 AND kind = ?3
                       AND key <> coalesce((SELECT id FROM view_keys WHERE text = ?4), 0)";
            let values = params![project, day, kind.number(), OTHER_KEY];
            connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?
        } else {
            let sql = "SELECT count(*) FROM views WHERE project = ?1 AND day = ?2
                       AND path <> coalesce((SELECT id FROM view_keys WHERE text = ?3), 0)";
            connection.prepare_cached(sql)?.query_row(params![project, day, OTHER_KEY], |row| row.get(0))?
        };
        Ok(count.cast_unsigned())
    }
}

/// Returns the oldest day of `project` that has rows.
pub fn oldest_day(connection: &Connection, project: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT min(day) FROM (SELECT min(day) AS day FROM views WHERE project = ?1
               UNION ALL SELECT min(day) FROM day_counts WHERE project = ?1
               UNION ALL SELECT min(day) FROM delivered_counts WHERE project = ?1)";
    connection.prepare_cached(sql)?.query_row([project], |row| row.get(0))
}

/// Deletes the rows of `project` (of all projects if it is `None`) before a day (days since 1970), and the keys to
/// which no row refers any more. Returns the number of deleted rows and keys, and waits for the disk.
pub fn delete_views_before(db: &Database, project: Option<&str>, day: i64) -> Result<u64, DatabaseError> {
    let mut total_deleted = 0;
    loop {
        let project = project.map(str::to_owned);
        let deleted = db.write(move |transaction| delete_days_before(transaction, project.as_deref(), day))?;
        total_deleted += deleted;
        if deleted < MAX_ROWS_PER_DELETE {
            return Ok(total_deleted);
        }
    }
}

/// Does one step of [`delete_views_before`], in a transaction of the caller. Returns the number of deleted rows and
/// keys; as long as it is not zero, there may be more.
pub fn delete_days_before(connection: &Connection, project: Option<&str>, day: i64) -> rusqlite::Result<u64> {
    let projects = match project {
        Some(project) => vec![project.to_owned()],
        None => projects_with_views(connection)?,
    };
    let mut deleted = 0;
    for project in &projects {
        for sql in [
            "DELETE FROM views WHERE (project, day, path) IN (
                 SELECT project, day, path FROM views WHERE project = ?1 AND day < ?2 ORDER BY day LIMIT ?3)",
            "DELETE FROM day_counts WHERE (project, day, kind, key) IN (
                 SELECT project, day, kind, key FROM day_counts WHERE project = ?1 AND day < ?2 ORDER BY day LIMIT ?3)",
            "DELETE FROM delivered_counts WHERE (project, day, installation, kind, key) IN (
                 SELECT project, day, installation, kind, key FROM delivered_counts
                 WHERE project = ?1 AND day < ?2 ORDER BY day LIMIT ?3)",
        ] {
            let limit = (MAX_ROWS_PER_DELETE - deleted).cast_signed();
            deleted += connection.prepare_cached(sql)?.execute(params![project, day, limit])? as u64;
        }
    }
    Ok(deleted + delete_unused_keys(connection, MAX_ROWS_PER_DELETE - deleted)?)
}

/// Deletes at most `limit` keys to which no row refers, and returns their number. It finds those that were last used
/// before the oldest day of all projects. A search for the rows of each key would read all rows.
fn delete_unused_keys(connection: &Connection, limit: u64) -> rusqlite::Result<u64> {
    let mut oldest = i64::MAX;
    for project in projects_with_views(connection)? {
        oldest = oldest.min(oldest_day(connection, &project)?.unwrap_or(i64::MAX));
    }
    let sql = "DELETE FROM view_keys
               WHERE id IN (SELECT id FROM view_keys WHERE last_day < ?1 ORDER BY last_day LIMIT ?2)";
    Ok(connection.prepare_cached(sql)?.execute(params![oldest, limit.cast_signed()])? as u64)
}

/// Lists the projects that have rows. It looks up one row of each project in each table.
fn projects_with_views(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "WITH RECURSIVE
                   of_views (project) AS (
                       SELECT min(project) FROM views UNION ALL
                       SELECT (SELECT min(project) FROM views WHERE project > of_views.project)
                       FROM of_views WHERE of_views.project IS NOT NULL),
                   of_counts (project) AS (
                       SELECT min(project) FROM day_counts UNION ALL
                       SELECT (SELECT min(project) FROM day_counts WHERE project > of_counts.project)
                       FROM of_counts WHERE of_counts.project IS NOT NULL),
                   of_delivered (project) AS (
                       SELECT min(project) FROM delivered_counts UNION ALL
                       SELECT (SELECT min(project) FROM delivered_counts WHERE project > of_delivered.project)
                       FROM of_delivered WHERE of_delivered.project IS NOT NULL)
               SELECT project FROM of_views WHERE project IS NOT NULL
               UNION SELECT project FROM of_counts WHERE project IS NOT NULL
               UNION SELECT project FROM of_delivered WHERE project IS NOT NULL";
    let mut select = connection.prepare_cached(sql)?;
    select.query_map([], |row| row.get(0))?.collect()
}
