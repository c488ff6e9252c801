//! The warp edge: connections, routes, extraction, replies. A handler reads like three sentences:
//! parse, ask the domain, reply.
//!
//! | module | what lives there |
//! |---|---|
//! | [`listen`] | the accept loop: TLS, timers, limits, drain |
//! | [`routes`] | every route, one line each |
//! | [`byte_budget`] | bytes of request bodies in memory |
//! | [`cors`] | origins whose scripts may read responses |
//! | [`peer`] | who called, through proxies of the operator's |
//! | [`extract`] | what a handler gets: [`extract::Call`] |
//! | [`reply`] | how an answer is put together |
//! | [`problem`] | errors of the domains to statuses, in three dialects |
//! | [`oauth`], [`pages`], [`fhir`], [`admin`] | the handlers |

pub mod admin;
pub mod byte_budget;
pub mod cors;
pub mod extract;
pub mod fhir;
pub mod listen;
pub mod oauth;
pub mod pages;
pub mod peer;
pub mod problem;
pub mod reply;
pub mod routes;
