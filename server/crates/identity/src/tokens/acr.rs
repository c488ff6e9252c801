//! Authentication context classes (OpenID Connect Core 1.0, 2).

/// Values of `acr` in ascending order of strength.
pub const ACR_VALUES: [&str; 2] = ["1", "2"];

/// The authentication context class of a sign-in (OpenID Connect Core section 2): `2` for more than one
/// factor, and `1` otherwise. The factors of a sign-in at an external provider are unknown, so it has class
/// `1`.
pub(super) fn acr_of(amr: &[String]) -> &'static str {
    ACR_VALUES[usize::from(amr.iter().any(|method| method == "mfa"))]
}
