//! Requests of the back-end client to the token endpoint and the revocation endpoint.

use serde_json::json;

use crate::history::Action;
use crate::nodes::{Answer, ClientRequest};
use crate::registration::BACKEND;
use crate::workload::Workload;

impl Workload {
    /// A new assertion of the back-end client.
    pub fn assertion(&self) -> String {
        let now = self.nodes().time().as_second();
        let claims = json!({
            "iss": BACKEND, "sub": BACKEND, "aud": format!("{}/oauth2/token", self.base), "jti": self.id(),
            "iat": now, "exp": now + 240,
        });
        self.key.sign("JWT", &claims)
    }

    /// A new DPoP proof for the token endpoint.
    pub fn proof(&self) -> String {
        let header = json!({ "alg": "EdDSA", "typ": "dpop+jwt", "jwk": self.key.bare_jwk() });
        let claims = json!({
            "htm": "POST", "htu": format!("{}/oauth2/token", self.base), "jti": self.id(),
            "iat": self.nodes().time().as_second(),
        });
        self.key.sign_with_header(&header, &claims)
    }

    /// Requests an access token with an assertion, and a DPoP proof if there is one.
    pub async fn request_token(
        &self,
        node: impl Into<Option<usize>>,
        action: Action,
        assertion: &str,
        proof: Option<&str>,
    ) -> Answer {
        let [kind, assertion] = assertion_fields(assertion);
        let scope = ("scope", "system/*.read system/*.cud");
        let form = [("grant_type", "client_credentials"), scope, kind, assertion];
        let mut request = ClientRequest::form("/oauth2/token", &form);
        if let Some(proof) = proof {
            request = request.header("dpop", proof);
        }
        self.ask(node, action, &[200, 400, 401], request).await
    }

    /// Requests access tokens until one is issued.
    pub async fn token(&self) -> String {
        loop {
            let (node, assertion) = (self.any_node(), self.assertion());
            let response = self.request_token(node, Action::Other("new token"), &assertion, None).await;
            if let Some(token) = response.member("access_token") {
                return token;
            }
            self.rest(200).await;
        }
    }

    /// Revokes a token of the back-end client. Returns whether it was acknowledged.
    pub async fn revoke(&self, node: usize, token: &str) -> bool {
        let assertion = self.assertion();
        let [kind, assertion] = assertion_fields(&assertion);
        let request = ClientRequest::form("/oauth2/revoke", &[("token", token), kind, assertion]);
        self.ask(node, Action::Revoke(signature_of(token).to_owned()), &[200], request).await.is(200)
    }
}

/// The signature of a JWT, which identifies it.
pub(crate) fn signature_of(token: &str) -> &str {
    token.rsplit('.').next().unwrap_or(token)
}

/// The form fields of a client assertion (RFC 7523 section 2.2).
pub fn assertion_fields(assertion: &str) -> [(&str, &str); 2] {
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    [("client_assertion_type", kind), ("client_assertion", assertion)]
}
