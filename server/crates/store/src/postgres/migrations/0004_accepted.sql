-- How often an operator has accepted this database after it went back in time, and a random id of the last time.
ALTER TABLE clock ADD COLUMN accepted bigint NOT NULL DEFAULT 0, ADD COLUMN accepted_id text NOT NULL DEFAULT '';
