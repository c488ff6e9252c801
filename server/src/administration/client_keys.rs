//! `trefoil client keygen`: a key pair for a client that authenticates with a private key
//! (`private_key_jwt`, SMART Backend Services).

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::ValueEnum;
use pkcs1::RsaPrivateKeyRef;
use pkcs8::{LineEnding, PrivateKeyInfoRef, SecretDocument};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::folder::make_folder;

use super::command::{Answer, RecordAnswer};
use crate::node::development_certificate::write_private;

/// The algorithms that SMART Backend Services requires of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum KeyAlgorithm {
    /// ECDSA with P-384.
    #[default]
    #[value(name = "ES384")]
    Es384,
    /// RSA with 2,048 bits.
    #[value(name = "RS384")]
    Rs384,
}

/// Writes a key pair: `private.jwk`, only for its owner, and `jwks.json` for the registration of the client.
///
/// # Errors
/// An error if a file exists or cannot be written.
pub fn write_key_pair(out: &Path, alg: KeyAlgorithm, kid: &str) -> Result<Answer> {
    make_folder(out, 0o700).with_context(|| out.display().to_string())?;
    let [private_file, public_file] = ["private.jwk", "jwks.json"].map(|name| out.join(name));
    for file in [&private_file, &public_file] {
        if file.exists() {
            bail!("{} exists already; choose another folder with --out", file.display());
        }
    }
    let private = generate_key(alg, kid)?;
    let public = json!({ "keys": [public_members(&private)] });
    let write_failure = |file: &Path| format!("failed to write {}", file.display());
    write_private(&private_file, &serde_json::to_string_pretty(&private)?)
        .with_context(|| write_failure(&private_file))?;
    std::fs::write(&public_file, serde_json::to_vec_pretty(&public)?)
        .with_context(|| write_failure(&public_file))?;
    let text = format!(
        "{}  the private key; it stays with the client\n{}  the public key, for example for\n\n  \
         trefoil client add ID --auth-method private_key_jwt --grant-type client_credentials --scope 'system/*.rs' --jwks {}",
        private_file.display(),
        public_file.display(),
        public_file.display(),
    );
    let json = json!({ "private_key": private_file, "jwks": public_file, "kid": kid });
    Ok(RecordAnswer::new(text, json).into())
}

/// Generates a private JWK.
///
/// # Errors
/// An error if the crypto library cannot generate a key.
pub fn generate_key(alg: KeyAlgorithm, kid: &str) -> Result<Value> {
    match alg {
        KeyAlgorithm::Es384 => generate_ec_key(kid),
        KeyAlgorithm::Rs384 => generate_rsa_key(kid),
    }
}

fn base64_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Generates a private JWK for ES384.
fn generate_ec_key(kid: &str) -> Result<Value> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING)?;
    // An uncompressed point: 0x04, then x and y.
    let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
    let d = pair.private_key().as_be_bytes()?;
    Ok(json!({
        "kty": "EC", "crv": "P-384", "alg": "ES384", "use": "sig", "kid": kid,
        "key_ops": ["sign"], "x": base64_url(x), "y": base64_url(y), "d": base64_url(d.as_ref()),
    }))
}

/// The PEM file of a private JWK for ES384 (PKCS #8, RFC 5958), for libraries that read no JWKs.
///
/// # Errors
/// An error if the JWK is not one of [`generate_key`] for ES384.
pub fn es384_key_pem(private: &Value) -> Result<String> {
    let member = |name: &str| -> Result<Vec<u8>> {
        Ok(URL_SAFE_NO_PAD.decode(private[name].as_str().unwrap_or_default())?)
    };
    let point = [vec![0x04], member("x")?, member("y")?].concat();
    let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
    let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, &member("d")?, &point)?;
    let der = SecretDocument::try_from(pair.to_pkcs8v1()?.as_ref())?;
    Ok(der.to_pem("PRIVATE KEY", LineEnding::LF)?.to_string())
}

/// Generates a private JWK for RS384.
fn generate_rsa_key(kid: &str) -> Result<Value> {
    use aws_lc_rs::encoding::AsDer as _;
    let pkcs8 = RsaKeyPair::generate(KeySize::Rsa2048)?.as_der()?;
    let info = PrivateKeyInfoRef::try_from(pkcs8.as_ref())?;
    let key = RsaPrivateKeyRef::try_from(info.private_key.as_bytes())?;
    let mut jwk = json!({
        "kty": "RSA", "alg": "RS384", "use": "sig", "kid": kid, "key_ops": ["sign"],
    });
    for (member, number) in [
        ("n", key.modulus),
        ("e", key.public_exponent),
        ("d", key.private_exponent),
        ("p", key.prime1),
        ("q", key.prime2),
        ("dp", key.exponent1),
        ("dq", key.exponent2),
        ("qi", key.coefficient),
    ] {
        jwk[member] = base64_url(number.as_bytes()).into();
    }
    Ok(jwk)
}

/// A JWK without its private members.
pub fn public_members(jwk: &Value) -> Value {
    let public = ["kty", "crv", "alg", "use", "kid", "x", "y", "n", "e"];
    let members = jwk.as_object().into_iter().flatten().filter(|(name, _)| public.contains(&name.as_str()));
    Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect())
}
