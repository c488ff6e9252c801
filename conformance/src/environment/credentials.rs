//! User name and password.

/// User name and password of a user.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// User name for the sign-in page.
    pub username: String,
    /// Password for the sign-in page.
    pub password: String,
}
