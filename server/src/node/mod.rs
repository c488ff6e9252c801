//! One running server: its services, and what they share.
//!
//! | module | contents |
//! |---|---|
//! | [`app`], `open_services` | [`app::App`]: all services, wired together |
//! | [`server_address`], [`clock_check`] | the addresses and the clock of the server |
//! | [`periodic_tasks`] | sweeps, and tasks that follow the other nodes |
//! | [`reload`] | reads the configuration again while the server runs |
//! | [`terminology_sync`] | applies stored resources to the terminology |
//! | [`saved_indexes`] | saved indexes of code systems |
//! | [`releases`] | the imported releases, as they are shown and removed |
//! | [`release_files`] | the indexes of releases as files to download |
//! | [`shared_releases`] | the indexes of releases that several nodes share |
//! | [`outbound`] | requests to other servers |
//! | [`audit_delivery`] | sends audit events to a place outside of the server |
//! | [`key_fetch`] | fetches the key sets of clients |
//! | [`provider_calls`] | requests to external providers |
//! | [`abandoned_requests`] | requests whose client leaves before the response |
//! | [`group_members`] | members of the Groups that a client is limited to |
//! | [`patient_assignment`] | assigns the versions of earlier programs to Patients |
//! | [`patient_relations`] | the patients of carers |
//! | [`closure_tables`] | the closure tables of clients |
//! | [`client_overview`] | origins and response types of all clients |
//! | [`capacity`], [`hashing`], [`question_pool`], [`byte_budget`], [`memory_limit`], [`descriptors`] | limits on CPU time, memory and file descriptors |
//! | [`process_usage`] | memory, processor time and descriptors of this process |
//! | [`data_folder`], [`store_state`] | the data folder; stores that must not be used |
//! | [`drain`] | the end of a server whose store moves |
//! | [`backups`], [`backup_schedule`], [`schedule_state`] | what backups contain besides the store; backups by schedule |
//! | [`development_certificate`], [`certificate`], [`tls`] | the development CA; the certificate that is presented; the TLS configuration |

pub mod abandoned_requests;
pub mod app;
pub mod audit_delivery;
pub mod backup_schedule;
pub mod backups;
pub mod byte_budget;
pub mod capacity;
pub mod certificate;
pub mod client_overview;
pub mod clock_check;
pub mod closure_tables;
pub mod data_folder;
pub mod descriptors;
pub mod development_certificate;
pub mod drain;
pub mod group_members;
pub mod hashing;
pub mod key_fetch;
pub mod memory_limit;
mod open_services;
pub mod outbound;
pub mod patient_assignment;
pub mod patient_relations;
pub mod periodic_tasks;
pub mod process_usage;
pub mod provider_calls;
pub mod question_pool;
pub mod release_files;
pub mod releases;
pub mod reload;
pub mod saved_indexes;
pub mod schedule_state;
pub mod server_address;
pub mod shared_releases;
pub mod store_state;
pub mod terminology_sync;
pub mod tls;
