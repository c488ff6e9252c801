//! HTTP: connections, routes, requests and responses. A handler parses the request, calls the domain and
//! builds the response; `?` turns an error of the domain into a [`problem::Problem`].
//!
//! | module | contents |
//! |---|---|
//! | [`listen`] | the accept loop: TLS, timers, limits, drain |
//! | [`routes`] | all routes, one line each |
//! | [`dispatch`], [`cors`] | from a request to the response of its handler |
//! | [`peer`] | the address of the client, also through proxies |
//! | [`extract`] | the request as handlers see it: context, body, path parameters |
//! | [`browser_cookies`], [`path_parameters`], [`quality_values`] | parts of a request that are read once |
//! | [`reply`], [`answer_memory`], [`range`](mod@range) | building responses, their memory, and parts of them |
//! | [`problem`] | why a handler does not answer, and the response to it in the dialect of the route |
//! | [`oauth`], [`pages`], [`fhir`], [`admin`] | the handlers |
//! | [`metrics`] | metrics for Prometheus |
//! | [`well_known`] | the page for a new password, and the contact for faults of security |
//! | `interface_docs` | in tests, generates the tables in `server/docs/interface` |

pub mod admin;
pub mod answer_memory;
pub mod browser_cookies;
pub mod cors;
pub mod dispatch;
pub mod extract;
pub mod fhir;
#[cfg(test)]
mod interface_docs;
pub mod listen;
pub mod metrics;
pub mod oauth;
pub mod pages;
pub mod path_parameters;
pub mod peer;
pub mod problem;
pub mod quality_values;
pub mod range;
pub mod reply;
pub mod routes;
pub mod well_known;
