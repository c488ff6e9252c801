//! Requests and responses as bytes, and their parts.
//!
//! | module | contents |
//! |---|---|
//! | [`variables`] | variables in texts |
//! | [`exchange`] | requests and responses, and their text for messages |
//! | [`build`] | builds the request of a row |
//! | [`answer_part`] | parts of a response, for `capture` and `jwt` |
//! | [`dpop_proof`] | DPoP proofs, valid and invalid |
//! | [`jose`] | signs and verifies JWTs |
//! | [`adapt`] | what servers other than Trefoil may require of every request |
//! | [`html_form`] | reads forms of pages |
//! | [`random`] | random texts |

pub mod adapt;
pub mod answer_part;
pub mod build;
pub mod dpop_proof;
pub mod exchange;
pub mod html_form;
pub mod jose;
pub mod random;
pub mod variables;
