-- The lowest version of the tables whose programs can use the present ones. A migration that they cannot use sets it to
-- its own number; after the others, programs of the version before keep working and can be started again.
ALTER TABLE migration ADD COLUMN usable_from bigint NOT NULL DEFAULT 3;
