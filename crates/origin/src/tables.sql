-- Times are milliseconds since 1970. Organizations and projects are those of the configuration, by their ids.

CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    name TEXT NOT NULL,
    -- What may be shown: the key's first characters.
    prefix TEXT NOT NULL,
    -- SHA-256 of the key: it has 256 random bits of its own, so that no slow hash is needed.
    hash BLOB NOT NULL UNIQUE,
    scope TEXT NOT NULL CHECK (scope IN ('read', 'write')),
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER
) STRICT;
CREATE UNIQUE INDEX keys_by_name ON keys (organization, name) WHERE revoked IS NULL;

-- What this origin draws once: the secret that links are signed with.
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    -- In the order in which they were started.
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    organization TEXT NOT NULL,
    project TEXT NOT NULL,
    domain TEXT NOT NULL,
    version TEXT,
    -- A JSON list; NULL is the whole site.
    paths TEXT,
    status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed')),
    progress INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    error TEXT,
    -- Of the bundle, which lies in bundles/<id>.<kind>.
    kind TEXT,
    digest BLOB,
    bytes INTEGER,
    -- The how manieth it was to be done.
    taken INTEGER,
    -- When the last link to its bundle ends.
    promised INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_by_turn ON jobs (organization, taken);
CREATE INDEX jobs_by_status ON jobs (status, organization);

CREATE TABLE previews (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    project TEXT NOT NULL,
    branch TEXT NOT NULL,
    -- What its address is made of: unique among all of them, as it may be the name of a host.
    slug TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    -- The sealed version that is served, once there is one, and the deployment that made it: it lies in the folder of that.
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
    -- JSON: a list of lines; an object.
    logs TEXT NOT NULL DEFAULT '[]',
    commit_of TEXT,
    author TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX deployments_by_branch ON deployments (project, branch, created);

CREATE TABLE batches (
    -- In the order of arrival and never given twice, also when rows are gone: a walk through pages holds on to the last
    -- number there was when it began.
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    -- The client's own: a batch that comes again is acknowledged and not counted twice. `import <digest>` for a file.
    id TEXT NOT NULL,
    received INTEGER NOT NULL,
    events INTEGER NOT NULL,
    searches INTEGER NOT NULL,
    UNIQUE (project, id)
) STRICT;

-- One row a search, a click being part of the search that it followed; a row of imported totals is `count` searches,
-- all at its time, `clicks` of which led to its page. In the order in which it is read: there is no index beside it.
CREATE TABLE searches (
    project TEXT NOT NULL,
    time INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    place INTEGER NOT NULL,
    -- Folded: terms that are the same to a reader are the same here.
    query TEXT NOT NULL,
    page TEXT,
    count INTEGER NOT NULL CHECK (count > 0),
    clicks INTEGER NOT NULL CHECK (clicks BETWEEN 0 AND count),
    PRIMARY KEY (project, time, batch, place)
) STRICT, WITHOUT ROWID;
