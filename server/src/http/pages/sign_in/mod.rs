//! {base}/sign-in: sign-in by user name and password, and the completion of every sign-in.
//!
//! | module | contents |
//! |---|---|
//! | [`form`] | the page with the form, and its POST |
//! | [`destination`] | where the browser goes after the sign-in |
//! | [`attempt`] | counted attempts to guess a password |
//! | [`completion`] | the session, the cookies and the redirect |
//! | [`passkey_form`] | the forms for a sign-in by passkey |

pub mod attempt;
pub mod completion;
pub mod destination;
pub mod form;
pub mod passkey_form;
