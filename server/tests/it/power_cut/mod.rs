//! Power cuts: the files in the data folder that are not part of the store or of exports, in every state in
//! which a power cut may leave them.
//!
//! | module | contents |
//! |---|---|
//! | `saved_indexes` | indexes of code systems |
//! | `audit_log` | lines of the audit log |
//! | `certificate` | the development certificate |

mod audit_log;
mod certificate;
mod saved_indexes;
