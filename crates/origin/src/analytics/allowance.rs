//! What an organization may put into the database.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::rows::unsigned;
use crate::budget::Budget;
use crate::limits::Resource;
use crate::shares::{NoShare, Shares};
use crate::space::FreeSpace;

/// When somebody who has too many rows may try again: what is too old is removed once an hour.
const TIDIED: Duration = Duration::from_hours(1);

/// What an organization may put into the database: so many searches within an hour, so many rows and bytes in all.
#[derive(Debug, Clone)]
pub struct Allowance {
    organization: String,
    /// The organization of each project.
    owners: Arc<BTreeMap<String, String>>,
    shares: Arc<Shares>,
    /// Searches within an hour; none for what the operator brings in.
    events: Option<Arc<Budget>>,
    /// What must stay free on the disk; the default if there is none.
    min_free: Option<u64>,
}

/// Why no more may be put into the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// There would be more of it than `[limits.organization]` says.
    #[error("your organization would have more {} than it may (limits.organization.{}); try again when old searches have been removed", what(*.0), .0.key())]
    Organization(Resource),
    /// There would be more of it than `[limits.total]` says, or less than is kept for others.
    #[error("limits.total.{} is reached, apart from what is reserved for organizations that have nothing; try again when old searches have been removed", .0.key())]
    Total(Resource),
    /// So many were taken in within an hour.
    #[error(
        "with this batch your organization would have sent more searches within an hour than limits.organization.events \
         allows; try again later"
    )]
    OwnEvents(Duration),
    /// All organizations have sent so many within an hour.
    #[error(
        "with this batch all organizations together would have sent more searches within an hour than limits.total.events \
         allows, apart from what is reserved for organizations that have sent none; try again later"
    )]
    AllEvents(Duration),
    /// The disk is nearly full.
    #[error("the disk of the origin is nearly full (store.minFree); try again later")]
    Disk,
}

fn what(resource: Resource) -> &'static str {
    if resource == Resource::Rows { "rows of searches" } else { "bytes in the database" }
}

impl NoRoom {
    /// When trying again may help.
    pub fn wait(&self) -> Duration {
        match self {
            NoRoom::OwnEvents(wait) | NoRoom::AllEvents(wait) => *wait,
            NoRoom::Disk => Duration::from_mins(1),
            NoRoom::Organization(_) | NoRoom::Total(_) => TIDIED,
        }
    }
}

impl Allowance {
    /// That of an organization. `events` counts what clients send; what the operator brings in counts as rows only.
    pub fn new(
        organization: &str,
        owners: Arc<BTreeMap<String, String>>,
        shares: Arc<Shares>,
        events: Option<Arc<Budget>>,
        min_free: Option<u64>,
    ) -> Allowance {
        Allowance { organization: organization.to_owned(), owners, shares, events, min_free }
    }

    /// Takes so many searches of the hour's.
    pub(super) fn events(&self, count: u64) -> Result<(), NoRoom> {
        let Some(events) = &self.events else { return Ok(()) };
        events.take_many(&self.organization, count, Instant::now()).map_err(|over| {
            self.shares.pool(Resource::Events).refuse();
            match over.why {
                NoShare::Organization => NoRoom::OwnEvents(over.wait),
                NoShare::Total => NoRoom::AllEvents(over.wait),
            }
        })
    }

    /// Whether so many rows with so many bytes may be added.
    pub(super) fn admits(
        &self,
        connection: &Connection,
        rows: u64,
        bytes: u64,
    ) -> rusqlite::Result<Result<(), NoRoom>> {
        let folder = connection.path().map(Path::new).and_then(Path::parent);
        let space = folder.and_then(|folder| FreeSpace::of(folder, self.min_free).ok());
        if space.and_then(|space| space.room()).is_some_and(|room| room < bytes) {
            self.shares.pool(Resource::DatabaseBytes).refuse();
            return Ok(Err(NoRoom::Disk));
        }
        let is_own = |project: &str| self.owners.get(project).is_some_and(|owner| *owner == self.organization);
        let used = DatabaseUse::read(connection, is_own)?;
        let check = |resource, own, all, more| {
            self.shares.pool(resource).check(own, all, more).map_err(|why| match why {
                NoShare::Organization => NoRoom::Organization(resource),
                NoShare::Total => NoRoom::Total(resource),
            })
        };
        let checked = check(Resource::Rows, used.own_rows, used.rows, rows)
            .and_then(|()| check(Resource::DatabaseBytes, used.own_bytes, used.file_bytes, bytes));
        Ok(checked)
    }
}

/// What the database holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct DatabaseUse {
    /// Rows of searches and batches of one organization, and their bytes, about.
    pub own_rows: u64,
    /// See above.
    pub own_bytes: u64,
    /// Rows of all of them.
    pub rows: u64,
    /// Bytes of everything that is in the database.
    pub file_bytes: u64,
}

impl DatabaseUse {
    /// Counts; the projects for which `is_own` says so are the organization's.
    pub fn read(connection: &Connection, is_own: impl Fn(&str) -> bool) -> rusqlite::Result<DatabaseUse> {
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
        let file_bytes = pages.saturating_mul(pragma("page_size")?).unsigned_abs();
        let mut used = DatabaseUse { file_bytes, ..DatabaseUse::default() };
        let mut select = connection.prepare_cached("SELECT project, rows, bytes FROM usage")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (more, bytes) = (unsigned(row, 1)?, unsigned(row, 2)?);
            used.rows += more;
            if is_own(row.get_ref(0)?.as_str()?) {
                used.own_rows += more;
                used.own_bytes += bytes;
            }
        }
        Ok(used)
    }
}
