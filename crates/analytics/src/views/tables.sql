-- The views of pages. Days are days since 1970, in UTC.

-- The paths, hosts and names of the rows below. Each is stored once, because a row of each day refers to it.
CREATE TABLE view_keys (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    -- The newest day whose rows refer to the key. When all older days and this one are deleted, nothing refers to it.
    last_day INTEGER NOT NULL
) STRICT;
CREATE INDEX view_keys_by_last_day ON view_keys (last_day);

-- The views of each page by class of visitor. The primary keys have the order in which rows are read and deleted, so
-- there are no further indexes.
CREATE TABLE views (
    project TEXT NOT NULL,
    day INTEGER NOT NULL,
    -- The key of the path. It is no foreign key, because SQLite would look for references to each deleted key.
    path INTEGER NOT NULL,
    human INTEGER NOT NULL,
    ai INTEGER NOT NULL,
    bot INTEGER NOT NULL,
    PRIMARY KEY (project, day, path)
) STRICT, WITHOUT ROWID;

-- Further counts of a day: `kind` is 1 for the hosts that led people here, 2 for the pages with which people began a
-- visit, 3 for paths that people requested and that do not exist, 4 for the names of programs.
CREATE TABLE day_counts (
    project TEXT NOT NULL,
    day INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (project, day, kind, key)
) STRICT, WITHOUT ROWID;
