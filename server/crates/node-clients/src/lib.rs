//! Clients of several nodes that fail, and the rules that the history of their requests must satisfy.
//!
//! The same clients use real processes (`server/tests/it/node_faults`) and simulated ones
//! (`trefoil-simulation`); both implement [`Nodes`]. Each client repeats its work until the run is over.
//!
//! | module | contents |
//! |---|---|
//! | [`nodes`] | the nodes as clients reach them; requests and answers |
//! | [`registration`] | the clients as the nodes know them: ids, keys, configuration |
//! | [`workload`] | the common part of all clients: requests that are recorded, random numbers, begin and end |
//! | [`tokens`] | tokens of a back-end client |
//! | [`credentials`] | assertions, DPoP proofs and revocations of a back-end client |
//! | [`browser`] | sign-in with PKCE, at the server and at a provider |
//! | [`passkeys`] | passkeys that are added, used and removed |
//! | [`families`] | families of refresh tokens |
//! | [`resources`] | versions of resources, with and without conditions |
//! | [`terminology`] | codes that all nodes must know |
//! | [`exports`] | exports, compared with the store |
//! | [`aftermath`] | the state after a run: spent credentials, and what is stored |
//! | [`history`] | requests, answers and faults, and the rules |

pub mod aftermath;
pub mod browser;
pub mod credentials;
pub mod exports;
pub mod families;
pub mod history;
pub mod nodes;
pub mod passkeys;
pub mod registration;
pub mod resources;
pub mod terminology;
pub mod tokens;
pub mod workload;

pub use history::{Action, Event, History};
pub use nodes::{NODES, Nodes};
pub use workload::{Pace, Workload};
