-- The tables of a store. Keys, values and bodies are bytes: their order does not depend on a collation, and they may
-- contain any byte. Times are milliseconds (_ms) or microseconds (_us) since 1970.

-- One row with the counters. A commit locks it until it ends, so sequence numbers become visible in order.
CREATE TABLE clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    store_id text NOT NULL,
    seq bigint NOT NULL,
    floor_ms bigint NOT NULL
);
INSERT INTO clock (store_id, seq, floor_ms) VALUES (replace(gen_random_uuid()::text, '-', ''), 0, 0);

-- One row for each writer task of each running node. A round increments its number within its transaction, so a writer
-- that lost its connection learns whether the round was committed.
CREATE TABLE writer (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    round bigint NOT NULL,
    used_at timestamptz NOT NULL
);

-- The newest version of each resource; the body of a tombstone is NULL.
CREATE TABLE current (
    kind bytea NOT NULL,
    id bytea NOT NULL,
    seq bigint NOT NULL,
    version bigint NOT NULL,
    updated_ms bigint NOT NULL,
    compartments bytea NOT NULL,
    body bytea,
    PRIMARY KEY (kind, id)
);

-- The older versions.
CREATE TABLE history (
    kind bytea NOT NULL,
    id bytea NOT NULL,
    seq bigint NOT NULL,
    version bigint NOT NULL,
    updated_ms bigint NOT NULL,
    compartments bytea NOT NULL,
    body bytea,
    PRIMARY KEY (kind, id, seq)
);

-- The resources of each compartment: a row for each span of sequence numbers, [from_seq, until_seq).
CREATE TABLE member (
    compartment bytea NOT NULL,
    kind bytea NOT NULL,
    id bytea NOT NULL,
    from_seq bigint NOT NULL,
    until_seq bigint NOT NULL,
    PRIMARY KEY (compartment, kind, id, from_seq)
);

-- All writes in order.
CREATE TABLE change (
    seq bigint PRIMARY KEY,
    kind bytea NOT NULL,
    id bytea NOT NULL,
    version bigint NOT NULL,
    updated_ms bigint NOT NULL,
    deleted boolean NOT NULL
);
CREATE INDEX change_kind ON change (kind, seq);
CREATE INDEX change_updated ON change (updated_ms, seq);

-- The types, with the sequence number of their first write.
CREATE TABLE kind (
    kind bytea PRIMARY KEY,
    first_seq bigint NOT NULL
);

-- The search index, with the sequence number of the last write that had the term.
CREATE TABLE term (
    term bytea NOT NULL,
    id bytea NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (term, id)
);

-- The ledger.
CREATE TABLE ledger (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    revision bigint NOT NULL,
    expires_us bigint
);
CREATE INDEX ledger_expires ON ledger (expires_us) WHERE expires_us IS NOT NULL;

-- Each round of ledger writes takes one block of revisions.
CREATE SEQUENCE ledger_block;
