//! The parties around a server under test, simulated: the browser and the authenticator of a person, and the
//! keys of clients and providers. The conformance suite, the clients of the simulation and the tests of the
//! crates share them.

mod authenticator;
mod base64url;
mod browser;
mod client_key;

pub use self::authenticator::{Authenticator, PRESENT, VERIFIED};
pub use self::base64url::base64url;
pub use self::browser::{BrowserCookies, answer_parameter, hidden_fields};
pub use self::client_key::ClientKey;
