//! A software authenticator with one passkey (Web Authentication sections 6.1 and 6.5).

use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::base64url::base64url;

/// Flags of authenticator data: the user was present.
pub const PRESENT: u8 = 0b001;
/// Flags of authenticator data: the user was present and verified.
pub const VERIFIED: u8 = 0b101;
/// Flag of authenticator data that contain a credential.
const WITH_CREDENTIAL: u8 = 0b100_0000;

/// An authenticator with a passkey for one server. Its key, credential id and signatures are derived from a
/// seed.
pub struct Authenticator {
    key: SigningKey,
    /// Credential id.
    pub id: [u8; 16],
    /// User handle that the server has chosen.
    pub handle: String,
    /// Signature counter of the last use.
    pub counter: u32,
    /// Whether uses are counted. A passkey that is synchronized between devices keeps the counter 0.
    pub counts: bool,
    /// Flags of the next use.
    pub flags: u8,
    /// Origin that the browser reports.
    pub origin: String,
    host: String,
}

impl Authenticator {
    /// Creates an authenticator for the server at a URL.
    ///
    /// # Panics
    /// Panics if the URL has no host.
    pub fn new(server: &str, seed: u64) -> Self {
        let server = Url::parse(server).expect("the URL of a server is well-formed");
        let digest = Sha256::digest(seed.to_be_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self {
            key: SigningKey::from_slice(&digest)
                .expect("the digest is a valid private key, except with negligible probability"),
            id,
            handle: String::new(),
            counter: 0,
            counts: true,
            flags: VERIFIED,
            origin: server.origin().ascii_serialization(),
            host: server.host_str().expect("a server has a host").to_owned(),
        }
    }

    /// Creates the passkey. Returns the credential for the server. `options` are the options that the server
    /// sent.
    pub fn create(&mut self, options: &Value) -> String {
        options["user"]["id"].as_str().unwrap_or_default().clone_into(&mut self.handle);
        let mut data = self.data(WITH_CREDENTIAL);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(self.id);
        // COSE key: EC2, ES256, P-256 (RFC 9053 section 7.1.1).
        let point = self.key.verifying_key().to_sec1_point(false);
        let (x, y) = point.as_bytes()[1..].split_at(32);
        data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20]);
        data.extend(x);
        data.extend([0x22, 0x58, 0x20]);
        data.extend(y);
        // CBOR of {"fmt": "none", "attStmt": {}, "authData": …}; the length of the data fits into a byte.
        let mut object = vec![0xa3, 0x63];
        object.extend(b"fmt\x64none\x67attStmt\xa0\x68authData\x58");
        object.push(data.len() as u8);
        object.extend(data);
        let client_data = self.client_data("webauthn.create", options);
        self.credential(&json!({
            "clientDataJSON": base64url(client_data), "attestationObject": base64url(object),
        }))
    }

    /// Uses the passkey. Returns the credential for the server. `options` are the options that the server
    /// sent.
    pub fn get(&mut self, options: &Value) -> String {
        self.counter += u32::from(self.counts);
        let client_data = self.client_data("webauthn.get", options);
        let data = self.data(0);
        let signed = [&data[..], &Sha256::digest(&client_data)].concat();
        let signature: Signature = self.key.sign(&signed);
        self.credential(&json!({
            "clientDataJSON": base64url(client_data), "authenticatorData": base64url(data),
            "signature": base64url(signature.to_der()), "userHandle": self.handle,
        }))
    }

    fn client_data(&self, kind: &str, options: &Value) -> String {
        json!({ "type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": false })
            .to_string()
    }

    /// Returns authenticator data: relying party, flags, counter.
    fn data(&self, more_flags: u8) -> Vec<u8> {
        let mut data = Sha256::digest(&self.host).to_vec();
        data.push(self.flags | more_flags);
        data.extend(self.counter.to_be_bytes());
        data
    }

    fn credential(&self, response: &Value) -> String {
        let id = base64url(self.id);
        json!({ "id": id, "rawId": id, "type": "public-key", "response": response }).to_string()
    }
}
