//! Benchmarks of identity.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use crate::connection::{headers, post_form};
use crate::{Bench, Doing, REQUESTS, Work, text};

/// Scope that permits to read all resources.
pub(crate) const READ: &str = "system/*.rs";

pub(crate) fn work() -> Vec<Work> {
    vec![
        Work {
            name: "userinfo, token seen before".to_owned(),
            prepare: Box::new(|bench, _| bench.same(bench.get("/oauth2/userinfo"))),
            ..Work::new("identity", "1.8 x", REQUESTS)
        },
        Work {
            name: "client_credentials, ES384 assertion".to_owned(),
            checks: true,
            prepare: Box::new(Bench::client_credentials),
            ..Work::new("identity", "0.3 ms, 2 x", REQUESTS / 5)
        },
        Work {
            name: "code flow: authorize, then token".to_owned(),
            prepare: Box::new(Bench::code_flow),
            ..Work::new("identity", "", REQUESTS / 10)
        },
    ]
}

impl Bench {
    /// Assertions are signed before the measurement starts, because signing is work of the client.
    fn client_credentials(&self, count: usize) -> Doing<'_> {
        let key = self.backend_key();
        let requests: Vec<String> = (0..count).map(|_| self.token_request(&key, READ)).collect();
        Box::new(move |connection, at| self.trefoil.ask(connection, &requests[at]))
    }

    /// Returns the private key of the backend client that signs with ES384.
    fn backend_key(&self) -> EcdsaKeyPair {
        let client = &self.demo["backend"][0];
        assert_eq!(client["alg"], "ES384");
        es384(&client["jwk"])
    }

    /// Returns a token request of the backend client with a new assertion, for these scopes.
    fn token_request(&self, key: &EcdsaKeyPair, scope: &str) -> String {
        let client = &self.demo["backend"][0];
        let audience = format!("{}/oauth2/token", self.trefoil.base());
        let jti = self.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let header = serde_json::json!({ "alg": "ES384", "kid": client["jwk"]["kid"], "typ": "JWT" });
        let now = jiff::Timestamp::now().as_second();
        let claims = serde_json::json!({
            "iss": client["client_id"], "sub": client["client_id"], "aud": audience,
            "exp": now + 300, "jti": format!("bench-{jti}"),
        });
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("scope", scope)
            .append_pair("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
            .append_pair("client_assertion", &sign(key, &header, &claims))
            .finish();
        post_form("/oauth2/token", "", &form)
    }

    /// Requests and returns an access token of the backend client with these scopes.
    pub(crate) fn backend_token(&self, scope: &str) -> String {
        let mut connection = self.trefoil.connect();
        let (head, body) = connection.call(&self.token_request(&self.backend_key(), scope));
        let response: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{head}{body}"));
        text(&response["access_token"]).to_owned()
    }

    /// Sends two requests: a signed-in browser gets a code, and the client redeems it.
    fn code_flow(&self, _: usize) -> Doing<'_> {
        let client = &self.demo["public"];
        let (client_id, redirect_uri) = (text(&client["client_id"]), text(&client["redirect_uris"][0]));
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", "openid email")
            .append_pair("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
            .append_pair("code_challenge_method", "S256")
            .finish();
        let authorize =
            format!("GET /oauth2/authorize?{query} HTTP/1.1\r\nHost: x\r\nCookie: {}\r\n\r\n", self.cookies);
        let exchange = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
            .finish();
        Box::new(move |connection, _| {
            let (head, _) = connection.call(&authorize);
            let to = headers(&head, "location").next().unwrap_or_else(|| panic!("{head}"));
            let code = to.split("code=").nth(1).and_then(|rest| rest.split('&').next());
            let code = code.unwrap_or_else(|| panic!("{to}"));
            self.trefoil.ask(connection, &post_form("/oauth2/token", "", &format!("{exchange}&code={code}")));
        })
    }
}

fn es384(jwk: &Value) -> EcdsaKeyPair {
    let member =
        |name: &str| URL_SAFE_NO_PAD.decode(text(&jwk[name])).expect("the key in demo.json is base64url");
    let point = [vec![4], member("x"), member("y")].concat();
    EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P384_SHA384_FIXED_SIGNING, &member("d"), &point)
        .expect("the key in demo.json is valid")
}

fn sign(key: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature =
        key.sign(&SystemRandom::new(), message.as_bytes()).expect("a valid key signs any message");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

/// Returns the time of one verification of an ES384 signature in microseconds: the minimum cost of a client
/// assertion.
pub(crate) fn es384_check_us() -> f64 {
    const CHECKS: u32 = 500;
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key can be generated");
    let message = [7; 400];
    let signature = pair.sign(&SystemRandom::new(), &message).expect("a valid key signs any message");
    let public = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, pair.public_key().as_ref());
    let started = std::time::Instant::now();
    for _ in 0..CHECKS {
        public.verify(&message, signature.as_ref()).expect("the signature was made by the same key");
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(CHECKS)
}
