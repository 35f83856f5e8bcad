//! Limits on the searches that an organization may add to the database.

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

/// The time after which an organization with too many rows may try again: expired searches are removed once an hour.
const TIDIED: Duration = Duration::from_hours(1);

/// The limits of one organization: searches within an hour, and rows and bytes in total.
#[derive(Debug, Clone)]
pub struct Allowance {
    organization: String,
    /// The organization of each project.
    owners: Arc<BTreeMap<String, String>>,
    shares: Arc<Shares>,
    /// The limit of searches within an hour; `None` for imports by the operator.
    events: Option<Arc<Budget>>,
    /// The number of bytes that must stay free on the disk; `None` for the default.
    min_free: Option<u64>,
}

/// The limit because of which searches are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The organization would hold more of the resource than `[limits.organization]` allows.
    #[error("your organization would have more {} than it may (limits.organization.{}); try again when old searches have been removed", what(*.0), .0.key())]
    Organization(Resource),
    /// All organizations together would hold more of the resource than `[limits.total]` allows, or the reserve for the
    /// others would be used.
    #[error("limits.total.{} is reached, apart from what is reserved for organizations that have nothing; try again when old searches have been removed", .0.key())]
    Total(Resource),
    /// The organization has sent as many searches within an hour as it may. The value is the time after which it may
    /// try again.
    #[error(
        "with this batch your organization would have sent more searches within an hour than limits.organization.events \
         allows; try again later"
    )]
    OwnEvents(Duration),
    /// All organizations together have sent as many searches within an hour as they may. The value is the time after
    /// which one may try again.
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
    /// Returns the time after which another attempt may succeed.
    pub fn wait(&self) -> Duration {
        match self {
            NoRoom::OwnEvents(wait) | NoRoom::AllEvents(wait) => *wait,
            NoRoom::Disk => Duration::from_mins(1),
            NoRoom::Organization(_) | NoRoom::Total(_) => TIDIED,
        }
    }
}

impl Allowance {
    /// Creates the limits of an organization. `events` limits searches that clients send; it is `None` for imports by
    /// the operator, which count as rows only.
    pub fn new(
        organization: &str,
        owners: Arc<BTreeMap<String, String>>,
        shares: Arc<Shares>,
        events: Option<Arc<Budget>>,
        min_free: Option<u64>,
    ) -> Allowance {
        Allowance { organization: organization.to_owned(), owners, shares, events, min_free }
    }

    /// Uses `count` searches of the hourly limit.
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

    /// Checks whether this number of rows, with this number of bytes, may be added.
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

/// The use of the database.
#[derive(Debug, Clone, Copy, Default)]
pub struct DatabaseUse {
    /// Rows of searches and batches of one organization.
    pub own_rows: u64,
    /// The approximate number of bytes of these rows.
    pub own_bytes: u64,
    /// Rows of searches and batches of all organizations.
    pub rows: u64,
    /// Bytes of the whole database, without free pages.
    pub file_bytes: u64,
}

impl DatabaseUse {
    /// Reads the use. `is_own` decides which projects belong to the organization.
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
