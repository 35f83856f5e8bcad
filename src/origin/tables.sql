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
    id TEXT PRIMARY KEY,
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
    -- Of the bundle, which lies in bundles/<id>.<kind> until `gone`.
    kind TEXT,
    digest BLOB,
    bytes INTEGER,
    gone INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_by_status ON jobs (status, created);

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
    project TEXT NOT NULL,
    -- The client's own: a batch that comes again is acknowledged and not counted twice.
    id TEXT NOT NULL,
    received INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (project, id)
) STRICT, WITHOUT ROWID;

-- One row a search; a click is part of the search that it followed.
CREATE TABLE searches (
    id INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    query TEXT NOT NULL,
    time INTEGER NOT NULL,
    clicked TEXT
) STRICT;
CREATE INDEX searches_by_time ON searches (project, time, query);
