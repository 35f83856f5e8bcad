-- The table `usage` also has the rows of `views`, `day_counts` and `delivered_counts`. The text of a key is counted
-- with each row of `delivered_counts` that refers to it, although it is stored once: the keys belong to no project.

-- A click may be added to a search that is stored already.
CREATE TRIGGER searches_clicked AFTER UPDATE OF page ON searches BEGIN
    UPDATE usage SET bytes = bytes + coalesce(octet_length(new.page), 0) - coalesce(octet_length(old.page), 0)
    WHERE project = new.project;
END;

CREATE TRIGGER views_added AFTER INSERT ON views BEGIN
    INSERT INTO usage (project, rows, bytes) VALUES (new.project, 1, 48 + octet_length(new.project))
    ON CONFLICT (project) DO UPDATE SET rows = rows + excluded.rows, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER views_removed AFTER DELETE ON views BEGIN
    UPDATE usage SET rows = rows - 1, bytes = bytes - 48 - octet_length(old.project) WHERE project = old.project;
END;
CREATE TRIGGER day_counts_added AFTER INSERT ON day_counts BEGIN
    INSERT INTO usage (project, rows, bytes) VALUES (new.project, 1, 48 + octet_length(new.project))
    ON CONFLICT (project) DO UPDATE SET rows = rows + excluded.rows, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER day_counts_removed AFTER DELETE ON day_counts BEGIN
    UPDATE usage SET rows = rows - 1, bytes = bytes - 48 - octet_length(old.project) WHERE project = old.project;
END;
-- The key of a row is stored as long as the row.
CREATE TRIGGER delivered_counts_added AFTER INSERT ON delivered_counts BEGIN
    INSERT INTO usage (project, rows, bytes)
    SELECT new.project, 1, 64 + octet_length(new.project) + octet_length(text) FROM view_keys WHERE id = new.key
    ON CONFLICT (project) DO UPDATE SET rows = rows + excluded.rows, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER delivered_counts_removed AFTER DELETE ON delivered_counts BEGIN
    UPDATE usage SET rows = rows - 1, bytes = bytes - 64 - octet_length(old.project)
        - (SELECT octet_length(text) FROM view_keys WHERE id = old.key)
    WHERE project = old.project;
END;
