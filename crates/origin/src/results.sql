-- The number of results of a search, NULL if it is not known, and its source: NULL for a search of a reader,
-- `assistant` for one of an assistant. Both are NULL for all searches that are stored already. The sizes in the table
-- `usage` leave these columns out.
ALTER TABLE searches ADD COLUMN results INTEGER;
ALTER TABLE searches ADD COLUMN source TEXT;
