-- The number of rows of searches and batches of each project, and their approximate number of bytes. The limits of
-- organizations are compared with these numbers. Triggers update them, so they are correct whichever code adds or removes
-- rows.
CREATE TABLE usage (project TEXT PRIMARY KEY, rows INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;

INSERT INTO usage (project, rows, bytes)
SELECT project, count(*), sum(bytes) FROM (
    SELECT project, 40 + octet_length(project) + octet_length(query) + coalesce(octet_length(page), 0) AS bytes FROM searches
    UNION ALL
    SELECT project, 80 + 2 * octet_length(project) + 2 * octet_length(id) AS bytes FROM batches
) GROUP BY project;

CREATE TRIGGER searches_added AFTER INSERT ON searches BEGIN
    UPDATE usage SET rows = rows + 1,
        bytes = bytes + 40 + octet_length(new.project) + octet_length(new.query) + coalesce(octet_length(new.page), 0)
    WHERE project = new.project;
END;
CREATE TRIGGER searches_removed AFTER DELETE ON searches BEGIN
    UPDATE usage SET rows = rows - 1,
        bytes = bytes - 40 - octet_length(old.project) - octet_length(old.query) - coalesce(octet_length(old.page), 0)
    WHERE project = old.project;
END;
-- A batch is inserted before its searches, so it creates the row of its project.
CREATE TRIGGER batches_added AFTER INSERT ON batches BEGIN
    INSERT INTO usage (project, rows, bytes) VALUES (new.project, 1, 80 + 2 * octet_length(new.project) + 2 * octet_length(new.id))
    ON CONFLICT (project) DO UPDATE SET rows = rows + excluded.rows, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER batches_removed AFTER DELETE ON batches BEGIN
    UPDATE usage SET rows = rows - 1, bytes = bytes - 80 - 2 * octet_length(old.project) - 2 * octet_length(old.id)
    WHERE project = old.project;
END;
