-- The queue of what this host sends to an origin or exports to a file. Only the database of a host has these tables.

-- The batches of searches (`batches.number`; the column `batch` of `searches`) that belong to no delivery batch yet,
-- with the earliest and the latest time of their searches.
CREATE TABLE unassigned_batches (
    batch INTEGER PRIMARY KEY,
    first_time INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    searches INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;
INSERT INTO unassigned_batches (batch, first_time, last_time, searches, bytes)
SELECT batch, min(time), max(time), count(*), sum(128 + octet_length(query) + coalesce(octet_length(page), 0))
FROM searches GROUP BY batch;

-- The clicks on searches that belonged to a delivery batch already. The page of a click is in the row of its search.
CREATE TABLE later_clicks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    place INTEGER NOT NULL
) STRICT;
CREATE INDEX later_clicks_by_search ON later_clicks (batch, place);

-- A delivery batch has the searches of batches with consecutive numbers, and the later clicks of a range of numbers. It
-- refers to them, so it has no texts of its own that would have to be forgotten. A search is in exactly one delivery
-- batch, for all receivers.
CREATE TABLE delivery_batches (
    -- A number is never used twice, because receivers count a delivery batch once by its number.
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    -- NULL if there are no searches.
    first_batch INTEGER,
    last_batch INTEGER,
    -- The earliest and the latest time of the searches, including those that the clicks belong to.
    first_time INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    -- The later clicks with numbers above `clicks_after`, up to `last_click`.
    clicks_after INTEGER NOT NULL,
    last_click INTEGER NOT NULL,
    searches INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    -- 0: waits for the delivery to an origin; 1: delivered; 2: refused by the origin; 3: left out, because too many
    -- waited.
    state INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX delivery_batches_by_first_batch ON delivery_batches (first_batch);
CREATE INDEX waiting_delivery_batches ON delivery_batches (number) WHERE state = 0;

-- The receivers of daily counts: 1 is the origin, 2 are exported files.
CREATE TABLE count_receivers (
    id INTEGER PRIMARY KEY,
    -- The address and project of the origin.
    target TEXT NOT NULL,
    -- Whether the counts of before the receiver was new are in `changed_counts`, or were sent.
    is_complete INTEGER NOT NULL DEFAULT 0,
    -- The number of the last delivery batch in an exported file.
    last_exported INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The daily counts of which a receiver does not have the present value. `kind` is 0 for the table `views`, else that of
-- `day_counts`. `state` is 0 for a count that changed, 1 for one that is being sent, 2 for one that was refused.
CREATE TABLE changed_counts (
    receiver INTEGER NOT NULL,
    state INTEGER NOT NULL,
    day INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY (receiver, state, day, kind, key)
) STRICT, WITHOUT ROWID;

-- The number of the last batch of daily counts.
CREATE TABLE count_batches (last_number INTEGER NOT NULL) STRICT;
INSERT INTO count_batches (last_number) VALUES (0);

CREATE TRIGGER views_added AFTER INSERT ON views BEGIN
    INSERT INTO changed_counts (receiver, state, day, kind, key)
    SELECT id, 0, new.day, 0, new.path FROM count_receivers WHERE true ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER views_changed AFTER UPDATE ON views BEGIN
    INSERT INTO changed_counts (receiver, state, day, kind, key)
    SELECT id, 0, new.day, 0, new.path FROM count_receivers WHERE true ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER day_counts_added AFTER INSERT ON day_counts BEGIN
    INSERT INTO changed_counts (receiver, state, day, kind, key)
    SELECT id, 0, new.day, new.kind, new.key FROM count_receivers WHERE true ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER day_counts_changed AFTER UPDATE ON day_counts BEGIN
    INSERT INTO changed_counts (receiver, state, day, kind, key)
    SELECT id, 0, new.day, new.kind, new.key FROM count_receivers WHERE true ON CONFLICT DO NOTHING;
END;
