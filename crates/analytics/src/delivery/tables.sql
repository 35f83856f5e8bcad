-- What each installation has counted, as far as it arrived here. The databases of hosts and of origins have this table,
-- beside those of views/tables.sql.

-- The largest numbers that arrived of each key of a day. The tables `views` and `day_counts` have the sums over all
-- installations, and only an increase of a number here is added there.
CREATE TABLE delivered_counts (
    project TEXT NOT NULL,
    -- In days since 1970.
    day INTEGER NOT NULL,
    -- The 64 random bits that are the id of the installation.
    installation INTEGER NOT NULL,
    -- As in `day_counts`; 0 for the views of a page.
    kind INTEGER NOT NULL,
    -- The key in `view_keys`.
    key INTEGER NOT NULL,
    -- The count; of views, those by people.
    count INTEGER NOT NULL,
    -- Views by AI services, and by other programs.
    ai INTEGER NOT NULL,
    bot INTEGER NOT NULL,
    PRIMARY KEY (project, day, kind, key, installation)
) STRICT, WITHOUT ROWID;
