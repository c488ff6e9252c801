//! The clients of a run. Each repeats its work until the run is over.
//!
//! | module | contents |
//! |---|---|
//! | [`credentials`] | assertions, DPoP proofs and revocations of a back-end client |
//! | [`browser`] | sign-in with PKCE, at the server and at the provider; families of refresh tokens |
//! | [`resources`] | versions of resources, with and without conditions |
//! | [`terminology`] | codes that all nodes must know |
//! | [`exports`] | exports, compared with the store |
//! | [`followers`] | the feed of changes |

pub mod browser;
pub mod credentials;
pub mod exports;
pub mod followers;
pub mod resources;
pub mod terminology;
