//! HTTP: connections, routes, requests and responses. A handler parses the request, calls the domain and builds the
//! response.
//!
//! | module | contents |
//! |---|---|
//! | [`listen`] | the accept loop: TLS, timers, limits, drain |
//! | [`routes`] | all routes, one line each |
//! | [`peer`] | the address of the client, also through proxies |
//! | [`extract`] | [`extract::RequestContext`], the request as handlers see it |
//! | [`reply`] | building responses |
//! | [`problem`] | errors of the domains as responses, in three dialects |
//! | [`oauth`], [`pages`], [`fhir`], [`admin`] | the handlers |

pub mod admin;
pub mod extract;
pub mod fhir;
pub mod listen;
pub mod oauth;
pub mod pages;
pub mod peer;
pub mod problem;
pub mod reply;
pub mod routes;
