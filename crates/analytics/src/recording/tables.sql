-- Random values that are created once: the secret with which cursors are signed, and the id of this installation.
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
