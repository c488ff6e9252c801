//! The identity provider of the federated sign-in, and the host with the keys of the back-end client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use node_clients::Workload;
use serde_json::{Value, json};
use test_parties::ClientKey;

use crate::network::{PORT, respond};
use crate::simulated_nodes;

const ISSUER: &str = "https://provider.example";

/// An identity provider. Each authorization request signs in the same user.
pub struct Provider {
    key: ClientKey,
    workload: Arc<Workload>,
    codes: Mutex<BTreeMap<String, String>>,
}

impl Provider {
    /// A provider with a new key.
    pub fn new(key: ClientKey, workload: Arc<Workload>) -> Self {
        Self { key, workload, codes: Mutex::default() }
    }

    fn answer(&self, path: &str, query: &BTreeMap<String, String>) -> Response<Full<Bytes>> {
        let text = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        match path {
            "/.well-known/openid-configuration" => json_answer(&json!({
                "issuer": ISSUER,
                "authorization_endpoint": format!("{ISSUER}/authorize"),
                "token_endpoint": format!("{ISSUER}/token"),
                "jwks_uri": format!("{ISSUER}/jwks"),
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["EdDSA"],
            })),
            "/jwks" => json_answer(&json!({ "keys": [self.key.jwk()] })),
            "/authorize" => {
                let code = self.workload.id();
                let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
                codes.insert(code.clone(), text("nonce").to_owned());
                let parameters = [("code", code.as_str()), ("state", text("state")), ("iss", ISSUER)];
                let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
                let mut response = respond(StatusCode::FOUND, "text/plain", "");
                if let Ok(to) = format!("{}?{query}", text("redirect_uri")).parse() {
                    response.headers_mut().insert("location", to);
                }
                response
            }
            "/token" => {
                let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
                // A code is valid once, as at a real provider, so that a repeated callback fails.
                let Some(nonce) = codes.remove(text("code")) else {
                    return respond(
                        StatusCode::BAD_REQUEST,
                        "application/json",
                        r#"{"error":"invalid_grant"}"#,
                    );
                };
                let now = simulated_nodes::time().as_second();
                let claims = json!({
                    "iss": ISSUER, "sub": "person-1", "aud": "trefoil", "nonce": nonce, "iat": now,
                    "exp": now + 300, "email": "person@provider.example", "email_verified": true,
                    "name": "Person of the Provider",
                });
                let id_token = self.key.sign("JWT", &claims);
                json_answer(
                    &json!({ "access_token": "opaque", "token_type": "Bearer", "id_token": id_token }),
                )
            }
            _ => respond(StatusCode::NOT_FOUND, "text/plain", ""),
        }
    }
}

fn json_answer(body: &Value) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "application/json", body.to_string())
}

/// Serves the provider, or only the keys of the back-end client if there is none.
///
/// # Errors
/// An error if the port is in use.
pub async fn serve(provider: Option<Arc<Provider>>, workload: Arc<Workload>) -> Result<()> {
    let listener = turmoil::net::TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (provider, workload) = (provider.clone(), Arc::clone(&workload));
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (provider, workload) = (provider.clone(), Arc::clone(&workload));
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let query = head.uri.query().unwrap_or_default().as_bytes().to_vec();
                    let mut parameters: BTreeMap<_, _> =
                        form_urlencoded::parse(&query).into_owned().collect();
                    parameters.extend(form_urlencoded::parse(&body).into_owned());
                    Ok::<_, Infallible>(match provider {
                        Some(provider) => provider.answer(head.uri.path(), &parameters),
                        None => json_answer(&json!({ "keys": [workload.key.jwk()] })),
                    })
                }
            });
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            drop(connection.await);
        });
    }
}
