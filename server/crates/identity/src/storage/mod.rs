//! Records in the ledger: typed access, the cache epoch, encryption at rest, and the server secret.

pub mod encryption;
pub(crate) mod epoch_ledger;
pub(crate) mod records;
pub mod server_secret;
