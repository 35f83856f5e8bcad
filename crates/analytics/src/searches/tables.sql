-- The searches of readers. Times are milliseconds since 1970. The database of an origin has the same two tables, from
-- crates/origin/src/tables.sql and results.sql; change all three together.

CREATE TABLE batches (
    -- The order of arrival. A number is never used twice, even after rows were removed, because a paginated query is
    -- bound to the newest number at its start.
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    -- The id of the batch: chosen by the client of an origin, or by the writer of a host. A batch that is sent again is
    -- acknowledged and not counted twice.
    id TEXT NOT NULL,
    received INTEGER NOT NULL,
    events INTEGER NOT NULL,
    searches INTEGER NOT NULL,
    UNIQUE (project, id)
) STRICT;

-- A row is one search, or `count` imported ones. A click is stored in the row of its search. The primary key has the
-- order in which rows are read, so there is no further index.
CREATE TABLE searches (
    project TEXT NOT NULL,
    time INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    place INTEGER NOT NULL,
    -- The folded term, so that equal terms of readers are equal here.
    query TEXT NOT NULL,
    page TEXT,
    count INTEGER NOT NULL CHECK (count > 0),
    clicks INTEGER NOT NULL CHECK (clicks BETWEEN 0 AND count),
    -- The number of results; NULL if it is not known.
    results INTEGER,
    -- NULL for a search of a reader, `assistant` for one of an assistant.
    source TEXT,
    PRIMARY KEY (project, time, batch, place)
) STRICT, WITHOUT ROWID;
