-- One row for each node that has used this database. A running node increments its number about once a second: a database
-- that was restored from a backup, or is a former primary, has a lower one than the node remembers.
CREATE TABLE node (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    beat bigint NOT NULL,
    base_url text NOT NULL,
    is_running boolean NOT NULL,
    seen_at timestamptz NOT NULL
);
