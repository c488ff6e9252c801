//! The other server of a comparison: that of a profile, or any FHIR server that needs no token.

use crate::api::{Api, ApiError, Bearer};
use crate::args::ProfileArgs;
use crate::failure::CommandFailure;
use crate::profile::Profile;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherServer {
    Profile(String),
    Url(String),
}

impl OtherServer {
    /// Parses the text of a field: an address, or else the name of a profile.
    pub fn parse(text: &str) -> Self {
        if text.contains("://") { Self::Url(text.to_owned()) } else { Self::Profile(text.to_owned()) }
    }

    /// The client of the server with its token. Exchanges are reported to the watcher of `api`.
    ///
    /// # Errors
    /// [`CommandFailure`] if there is no such profile, if its address is invalid, or if no user is signed in
    /// there.
    pub async fn connect(&self, api: &Api) -> Result<(Api, Bearer), CommandFailure> {
        let profile = match self {
            Self::Profile(name) => {
                let args = ProfileArgs { profile: Some(name.clone()), ..ProfileArgs::default() };
                Profile::read(&args)?.with_token_file()
            }
            Self::Url(url) => {
                let profile = Profile::at(url)?;
                Profile { fhir_base: profile.base_url.clone(), ..profile }
            }
        };
        let profile = Profile { read_only: api.profile().read_only, ..profile };
        let bearer = match (&profile.backend, profile.is_anonymous()) {
            (Some(_), _) => Bearer::Backend,
            (None, true) => Bearer::Anonymous,
            (None, false) => Bearer::User,
        };
        let other = api.with_profile(profile)?;
        if bearer == Bearer::User && other.restore_session().await.is_none() {
            return Err(ApiError::SignIn(format!(
                "no user is signed in at {}; sign in there first",
                other.profile().base_url
            ))
            .into());
        }
        Ok((other, bearer))
    }
}
