-- Times are milliseconds since 1970. Organizations and projects are those of the configuration, by their ids.

CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The first characters of the key, which may be shown.
    prefix TEXT NOT NULL,
    -- SHA-256 of the key. The key has 256 random bits, so a slow hash is not needed.
    hash BLOB NOT NULL UNIQUE,
    scope TEXT NOT NULL CHECK (scope IN ('read', 'write')),
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER
) STRICT;
CREATE UNIQUE INDEX keys_by_name ON keys (organization, name) WHERE revoked IS NULL;

-- Random secrets that the origin creates once, such as the one that links are signed with.
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    -- The order in which jobs were queued.
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    organization TEXT NOT NULL,
    project TEXT NOT NULL,
    domain TEXT NOT NULL,
    version TEXT,
    -- The requested pages as a JSON list; NULL for the whole site.
    paths TEXT,
    status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed')),
    progress INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    error TEXT,
    -- Format, digest and size of the bundle, which is the file bundles/<id>.<kind>.
    kind TEXT,
    digest BLOB,
    bytes INTEGER,
    -- The order in which workers started the jobs; NULL while a job waits.
    taken INTEGER,
    -- The time at which the last link to its bundle expires.
    promised INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_by_turn ON jobs (organization, taken);
CREATE INDEX jobs_by_status ON jobs (status, organization);

CREATE TABLE previews (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    project TEXT NOT NULL,
    branch TEXT NOT NULL,
    -- The part of its address that names the branch. It is unique among all previews, because it may be a host name.
    slug TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    -- The sealed version that is served, once there is one, and the deployment that built it. The version is in the
    -- folder of that deployment.
    version TEXT,
    deployment TEXT,
    UNIQUE (project, branch)
) STRICT;

CREATE TABLE deployments (
    id TEXT PRIMARY KEY,
    organization TEXT NOT NULL,
    project TEXT NOT NULL,
    branch TEXT NOT NULL,
    slug TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'in_progress', 'success', 'failure')),
    created INTEGER NOT NULL,
    ended INTEGER,
    summary TEXT,
    -- JSON: logs is a list of lines, commit_of and author are objects.
    logs TEXT NOT NULL DEFAULT '[]',
    commit_of TEXT,
    author TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX deployments_by_branch ON deployments (project, branch, created);

CREATE TABLE batches (
    -- The order of arrival. A number is never used twice, even after rows were removed, because a paginated query is
    -- bound to the newest number at its start.
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    -- The id that the client chose. A batch that is sent again is acknowledged and not counted twice. The id of an
    -- imported file is `import <digest>`.
    id TEXT NOT NULL,
    received INTEGER NOT NULL,
    events INTEGER NOT NULL,
    searches INTEGER NOT NULL,
    UNIQUE (project, id)
) STRICT;

-- One row for each search; a click is part of the search before it. A row of imported totals stands for `count` searches
-- at the same time, `clicks` of which led to its page. The primary key has the order in which rows are read, so there is
-- no further index.
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
    PRIMARY KEY (project, time, batch, place)
) STRICT, WITHOUT ROWID;
