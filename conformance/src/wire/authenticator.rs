//! A software authenticator with one passkey (Web Authentication sections 6.1 and 6.5).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use url::Url;

use super::jose::KeyError;
use super::random::random_text;

/// Flags of authenticator data: the user was present; and verified, too.
const PRESENT: u8 = 0b001;
const VERIFIED: u8 = 0b101;
/// Flag of authenticator data that contain a credential.
const WITH_CREDENTIAL: u8 = 0b100_0000;

/// An authenticator that holds a passkey for a server.
pub struct Authenticator {
    key: EcdsaKeyPair,
    id: Vec<u8>,
    handle: String,
    counter: u32,
    origin: String,
    host: String,
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Authenticator {
    /// Creates an authenticator for the server at this URL.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the crypto library cannot generate a key.
    pub fn new(base_url: &Url) -> Result<Self, KeyError> {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING);
        Ok(Self {
            key: key.map_err(|_| KeyError::Refused("P-256"))?,
            id: random_text().into_bytes().into_iter().take(16).collect(),
            handle: String::new(),
            counter: 0,
            origin: base_url.origin().ascii_serialization(),
            host: base_url.host_str().unwrap_or_default().to_owned(),
        })
    }

    fn client_data(&self, kind: &str, options: &Value) -> String {
        json!({ "type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": false })
            .to_string()
    }

    /// Returns authenticator data: relying party, flags, counter.
    fn data(&self, flags: u8) -> Vec<u8> {
        let mut data = digest(&SHA256, self.host.as_bytes()).as_ref().to_vec();
        data.push(flags);
        data.extend(self.counter.to_be_bytes());
        data
    }

    fn credential(&self, response: &Value) -> String {
        json!({ "id": b64(&self.id), "rawId": b64(&self.id), "type": "public-key", "response": response })
            .to_string()
    }

    /// Creates the passkey, and returns the credential for the server. `options` are those of the server.
    pub fn create(&mut self, options: &Value) -> String {
        self.handle = options["user"]["id"].as_str().unwrap_or_default().to_owned();
        let mut data = self.data(VERIFIED | WITH_CREDENTIAL);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(&self.id);
        // COSE key: EC2, ES256, P-256 (RFC 9053 section 7.1.1).
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20]);
        data.extend(x);
        data.extend([0x22, 0x58, 0x20]);
        data.extend(y);
        // CBOR of {"fmt": "none", "attStmt": {}, "authData": …}; the length of the data fits into a byte.
        let mut object = vec![0xa3, 0x63];
        object.extend(b"fmt\x64none\x67attStmt\xa0\x68authData\x58");
        object.push(data.len() as u8);
        object.extend(data);
        let client_data = b64(self.client_data("webauthn.create", options));
        self.credential(&json!({ "clientDataJSON": client_data, "attestationObject": b64(object) }))
    }

    /// Uses the passkey, and returns the credential for the server. `verified` states whether the user was
    /// verified.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the crypto library cannot sign.
    pub fn get(&mut self, options: &Value, verified: bool) -> Result<String, KeyError> {
        self.counter += 1;
        let client_data = self.client_data("webauthn.get", options);
        let data = self.data(if verified { VERIFIED } else { PRESENT });
        let signed = [data.clone(), digest(&SHA256, client_data.as_bytes()).as_ref().to_vec()].concat();
        let signature =
            self.key.sign(&SystemRandom::new(), &signed).map_err(|_| KeyError::Refused("P-256"))?;
        Ok(self.credential(&json!({
            "clientDataJSON": b64(client_data), "authenticatorData": b64(data), "signature": b64(signature),
            "userHandle": self.handle,
        })))
    }
}
