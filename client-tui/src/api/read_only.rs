//! Requests that a read-only client (`--read-only`) does not send.
//!
//! The meaning of a request decides, not the command that sends it: edited and repeated requests pass here,
//! too.

use http::Method;
use reqwest::Request;

use super::{Api, ApiError};

/// Operations of FHIR that only read, although clients may send them by POST.
const READING_OPERATIONS: [&str; 8] = [
    "_search",
    "$batch-validate-code",
    "$expand",
    "$lookup",
    "$subsumes",
    "$translate",
    "$validate-code",
    "$versions",
];

impl Api {
    /// Checks that the client may change something on the server. `action` completes the sentence "this
    /// command …".
    ///
    /// # Errors
    /// [`ApiError::ReadOnly`].
    pub fn check_writable(&self, action: &str) -> Result<(), ApiError> {
        match self.profile().read_only {
            true => Err(ApiError::ReadOnly(format!("this command {action}"))),
            false => Ok(()),
        }
    }

    /// Checks that a read-only client may send this request.
    ///
    /// # Errors
    /// [`ApiError::ReadOnly`]: the request was not sent.
    pub(super) fn check_read_only(&self, request: &Request) -> Result<(), ApiError> {
        if !self.profile().read_only || self.only_reads(request) {
            return Ok(());
        }
        let (method, path) = (request.method(), request.url().path());
        Err(ApiError::ReadOnly(format!("{method} {path} may change something on the server")))
    }

    fn only_reads(&self, request: &Request) -> bool {
        let path = request.url().path();
        let operation = path.rsplit('/').next().unwrap_or_default();
        // Bulk Data kick-offs create jobs and files, also by GET.
        let starts_job = operation == "$export" || request.headers().get("prefer").is_some_and(is_async);
        match *request.method() {
            Method::GET | Method::HEAD | Method::OPTIONS => !starts_job,
            Method::POST if starts_job => false,
            Method::POST if self.is_fhir(request) => READING_OPERATIONS.contains(&operation),
            Method::POST => self.is_reading_endpoint(request),
            _ => false,
        }
    }

    fn is_fhir(&self, request: &Request) -> bool {
        let rest = request.url().as_str().strip_prefix(self.profile().fhir_base.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
    }

    /// Returns whether the address is an endpoint that gets, checks or describes tokens. Revocation and
    /// registration are not among them, nor is any address that the server did not publish.
    fn is_reading_endpoint(&self, request: &Request) -> bool {
        let openid = self.0.openid.get();
        let published = [
            openid.map(|openid| openid.token_endpoint.as_str()),
            openid.and_then(|openid| openid.userinfo_endpoint.as_deref()),
            openid.and_then(|openid| openid.device_authorization_endpoint.as_deref()),
            openid.and_then(|openid| openid.introspection_endpoint.as_deref()),
            self.0.smart.get().map(|smart| smart.token_endpoint.as_str()),
        ];
        published
            .into_iter()
            .flatten()
            .any(|endpoint| url::Url::parse(endpoint).is_ok_and(|endpoint| endpoint == *request.url()))
    }
}

fn is_async(prefer: &http::HeaderValue) -> bool {
    prefer.to_str().is_ok_and(|text| text.contains("respond-async"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClientClock;
    use crate::profile::Profile;

    #[test]
    fn the_meaning_of_a_request_decides() {
        crate::install_crypto();
        let profile = Profile { read_only: true, ..Profile::at("https://t.example").unwrap() };
        let api = Api::new(profile, ClientClock::SYSTEM, Box::new(drop)).unwrap();
        #[track_caller]
        fn check(api: &Api, method: Method, url: &str, allowed: bool) {
            let request = api.http().request(method, url).build().unwrap();
            assert_eq!(api.check_read_only(&request).is_ok(), allowed, "{request:?}");
        }
        let base = "https://t.example/fhir/R4";
        for (method, path, allowed) in [
            (Method::GET, "/Patient/p1", true),
            (Method::GET, "/Patient?name=x", true),
            (Method::POST, "/Patient/_search", true),
            (Method::POST, "/ValueSet/$validate-code", true),
            (Method::POST, "/CodeSystem/x/$subsumes", true),
            (Method::GET, "/$export", false),
            (Method::GET, "/Group/g1/$export?_type=Patient", false),
            (Method::POST, "/Patient/$export", false),
            (Method::POST, "/Patient", false),
            (Method::POST, "", false),
            (Method::POST, "/$reindex", false),
            (Method::PUT, "/Patient/p1", false),
            (Method::PATCH, "/Patient/p1", false),
            (Method::DELETE, "/jobs/1", false),
        ] {
            check(&api, method, &format!("{base}{path}"), allowed);
        }
        // Discovery was not read, so that no endpoint is known.
        check(&api, Method::POST, "https://t.example/oauth2/token", false);
        check(&api, Method::POST, "https://t.example/oauth2/revoke", false);
        let openid = serde_json::json!({
            "issuer": "https://t.example", "authorization_endpoint": "https://t.example/oauth2/authorize",
            "token_endpoint": "https://t.example/oauth2/token",
            "userinfo_endpoint": "https://t.example/oauth2/userinfo",
            "revocation_endpoint": "https://t.example/oauth2/revoke",
            "registration_endpoint": "https://t.example/oauth2/register",
            "introspection_endpoint": "https://t.example/oauth2/introspect",
        });
        api.0.openid.set(serde_json::from_value(openid).unwrap()).unwrap();
        for (endpoint, allowed) in [
            ("token", true),
            ("introspect", true),
            ("userinfo", true),
            ("revoke", false),
            ("register", false),
        ] {
            check(&api, Method::POST, &format!("https://t.example/oauth2/{endpoint}"), allowed);
        }
    }
}
