//! Private keys of backend clients: reads JWK, JWK Set and PEM, and builds the DER structures for signing.
//!
//! `jsonwebtoken` signs with DER but cannot read private JWKs for the algorithms of SMART Backend Services.
//! Therefore this module converts them to `RSAPrivateKey` (RFC 8017 A.1.2), or to `PrivateKeyInfo` around
//! `ECPrivateKey` (RFC 5208, RFC 5915).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey};
use pkcs1::RsaPrivateKeyOwned;
use pkcs8::der::Encode as _;
use pkcs8::der::asn1::{OctetStringRef, Uint};
use pkcs8::spki::AlgorithmIdentifierRef;
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use sec1::EcPrivateKey;
use serde_json::Value;

/// A key that signs client assertions.
#[derive(Clone)]
pub struct SigningKey {
    /// Signature algorithm, ES384 or RS384.
    pub alg: Algorithm,
    /// Key id in the JWK Set that the client registered.
    pub kid: Option<String>,
    pub encoding: EncodingKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({:?}, kid {:?})", self.alg, self.kid)
    }
}

/// Reasons why a key file cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// The text is neither JSON nor PEM.
    #[error("the key is neither a JWK, nor a JWK Set, nor PEM")]
    Format,
    /// The JWK Set has no private key.
    #[error("the JWK Set contains no private key (a key with 'd')")]
    NoPrivateKey,
    /// The key type or curve is not supported.
    #[error("a key of kty '{kty}' and crv '{crv}' is not supported; use EC on P-384 or RSA")]
    Kind {
        /// Value of `kty` in the key.
        kty: String,
        /// Value of `crv` in the key; empty if the key has none.
        crv: String,
    },
    /// A member of the JWK is missing or is not base64url.
    #[error("member '{0}' of the JWK is missing or is not base64url")]
    Member(&'static str),
    /// SMART Backend Services does not allow the algorithm.
    #[error("alg '{0}' is not supported; use ES384 or RS384")]
    Alg(String),
    /// The PEM block does not contain a private key for the algorithm.
    #[error("the PEM block contains no private key: {0}")]
    Pem(String),
    /// A member is too long for DER.
    #[error("the key cannot be encoded: {0}")]
    Encoding(#[from] pkcs8::der::Error),
}

/// Parses the text of a key file. `alg` and `kid` are used if the file does not state them.
///
/// # Errors
/// The reason why the key cannot be used.
pub fn read(text: &str, alg: Option<&str>, kid: Option<&str>) -> Result<SigningKey, KeyError> {
    if text.trim_start().starts_with("-----BEGIN") {
        return from_pem(text.as_bytes(), alg, kid);
    }
    let json: Value = serde_json::from_str(text).map_err(|_| KeyError::Format)?;
    let jwk = match json["keys"].as_array() {
        Some(keys) => keys.iter().find(|key| key["d"].is_string()).ok_or(KeyError::NoPrivateKey)?,
        None => &json,
    };
    from_jwk(jwk, alg, kid)
}

/// Reads one private JWK (RFC 7517, RFC 7518 6.2.2 and 6.3.2).
///
/// # Errors
/// The reason why the key cannot be used.
pub fn from_jwk(jwk: &Value, alg: Option<&str>, kid: Option<&str>) -> Result<SigningKey, KeyError> {
    let text = |name: &str| jwk[name].as_str().unwrap_or_default();
    let encoding = match (text("kty"), text("crv")) {
        ("EC", "P-384") => EncodingKey::from_ec_der(&ec_der(jwk)?),
        ("RSA", _) => EncodingKey::from_rsa_der(&rsa_der(jwk)?),
        (kty, crv) => return Err(KeyError::Kind { kty: kty.to_owned(), crv: crv.to_owned() }),
    };
    let of_kind = if text("kty") == "EC" { "ES384" } else { "RS384" };
    let alg = algorithm(jwk["alg"].as_str().or(alg).unwrap_or(of_kind))?;
    Ok(SigningKey { alg, kid: jwk["kid"].as_str().or(kid).map(str::to_owned), encoding })
}

fn from_pem(pem: &[u8], alg: Option<&str>, kid: Option<&str>) -> Result<SigningKey, KeyError> {
    let ec = || EncodingKey::from_ec_pem(pem);
    let rsa = || EncodingKey::from_rsa_pem(pem);
    let (alg, encoding) = match alg.map(algorithm).transpose()? {
        Some(Algorithm::ES384) => (Algorithm::ES384, ec()),
        Some(alg) => (alg, rsa()),
        None => match ec() {
            Ok(key) => (Algorithm::ES384, Ok(key)),
            Err(_) => (Algorithm::RS384, rsa()),
        },
    };
    let encoding = encoding.map_err(|error| KeyError::Pem(error.to_string()))?;
    Ok(SigningKey { alg, kid: kid.map(str::to_owned), encoding })
}

fn algorithm(name: &str) -> Result<Algorithm, KeyError> {
    match name {
        "ES384" => Ok(Algorithm::ES384),
        "RS384" => Ok(Algorithm::RS384),
        other => Err(KeyError::Alg(other.to_owned())),
    }
}

/// Decodes a base64url member.
fn member(jwk: &Value, name: &'static str) -> Result<Vec<u8>, KeyError> {
    let text = jwk[name].as_str().filter(|text| !text.is_empty()).ok_or(KeyError::Member(name))?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| KeyError::Member(name))
}

/// Encodes the `RSAPrivateKey` of a key.
fn rsa_der(jwk: &Value) -> Result<Vec<u8>, KeyError> {
    let number = |name| Ok::<_, KeyError>(Uint::new(&member(jwk, name)?)?);
    let key = RsaPrivateKeyOwned {
        modulus: number("n")?,
        public_exponent: number("e")?,
        private_exponent: number("d")?,
        prime1: number("p")?,
        prime2: number("q")?,
        exponent1: number("dp")?,
        exponent2: number("dq")?,
        coefficient: number("qi")?,
        other_prime_infos: None,
    };
    Ok(key.to_der()?)
}

/// Encodes the `PrivateKeyInfo` of a key on P-384.
fn ec_der(jwk: &Value) -> Result<Vec<u8>, KeyError> {
    const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
    const SECP384R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
    /// Size of one coordinate, in bytes.
    const SIZE: usize = 48;
    let sized = |name| {
        member(jwk, name).and_then(|b| if b.len() == SIZE { Ok(b) } else { Err(KeyError::Member(name)) })
    };
    // An uncompressed point: 0x04, x, y.
    let point = [&[4][..], &sized("x")?, &sized("y")?].concat();
    let key =
        EcPrivateKey { private_key: &sized("d")?, parameters: None, public_key: Some(&point) }.to_der()?;
    let algorithm = AlgorithmIdentifierRef { oid: EC_PUBLIC_KEY, parameters: Some((&SECP384R1).into()) };
    Ok(PrivateKeyInfoRef::new(algorithm, OctetStringRef::new(&key)?).to_der()?)
}
