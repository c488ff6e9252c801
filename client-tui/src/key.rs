//! Private keys of backend clients: reading JWK, JWK Set and PEM, and the DER that signing needs.
//!
//! `jsonwebtoken` signs with DER but reads private JWKs for no algorithm of SMART Backend Services, so
//! the two structures are written here: `RSAPrivateKey` (RFC 8017 A.1.2) and `PrivateKeyInfo` around
//! `ECPrivateKey` (RFC 5208, RFC 5915).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::Value;

/// A key that signs client assertions.
#[derive(Clone)]
pub struct SigningKey {
    /// ES384 or RS384.
    pub alg: Algorithm,
    /// Names the key in the set that the client registered.
    pub kid: Option<String>,
    /// The private half.
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
    /// Neither JSON nor PEM.
    #[error("the key is neither a JWK, nor a JWK Set, nor PEM")]
    Format,
    /// A set without a private key.
    #[error("the JWK Set contains no private key (a key with 'd')")]
    NoPrivateKey,
    /// Another kind of key.
    #[error("a key of kty '{kty}' and crv '{crv}' is not supported; use EC on P-384 or RSA")]
    Kind {
        /// As found.
        kty: String,
        /// As found, empty when absent.
        crv: String,
    },
    /// A member is missing or is not base64url.
    #[error("member '{0}' of the JWK is missing or is not base64url")]
    Member(&'static str),
    /// An algorithm that SMART Backend Services does not name.
    #[error("alg '{0}' is not supported; use ES384 or RS384")]
    Alg(String),
    /// The PEM block does not hold a key for the algorithm.
    #[error("the PEM block contains no private key: {0}")]
    Pem(String),
}

/// Parses the text of a key file. `alg` and `kid` supply members that the file lacks.
///
/// # Errors
/// Returns the fault of the key.
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
/// Returns the fault of the key.
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

/// The bytes of a base64url member.
fn member(jwk: &Value, name: &'static str) -> Result<Vec<u8>, KeyError> {
    let text = jwk[name].as_str().filter(|text| !text.is_empty()).ok_or(KeyError::Member(name))?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| KeyError::Member(name))
}

/// `RSAPrivateKey`: version 0, then the eight numbers in their order.
fn rsa_der(jwk: &Value) -> Result<Vec<u8>, KeyError> {
    let mut content = integer(&[0]);
    for name in ["n", "e", "d", "p", "q", "dp", "dq", "qi"] {
        content.extend(integer(&member(jwk, name)?));
    }
    Ok(tlv(0x30, &content))
}

/// `PrivateKeyInfo` of a key on P-384.
fn ec_der(jwk: &Value) -> Result<Vec<u8>, KeyError> {
    /// id-ecPublicKey 1.2.840.10045.2.1 and secp384r1 1.3.132.0.34 as one AlgorithmIdentifier.
    const EC_P384: &[u8] = &[
        0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00,
        0x22,
    ];
    /// Bytes of one coordinate.
    const SIZE: usize = 48;
    let sized = |name| {
        member(jwk, name).and_then(|b| if b.len() == SIZE { Ok(b) } else { Err(KeyError::Member(name)) })
    };
    // A BIT STRING without unused bits, holding an uncompressed point.
    let point = [&[0, 4][..], &sized("x")?, &sized("y")?].concat();
    let key = [integer(&[1]), tlv(0x04, &sized("d")?), tlv(0xa1, &tlv(0x03, &point))].concat();
    Ok(tlv(0x30, &[integer(&[0]), EC_P384.to_vec(), tlv(0x04, &tlv(0x30, &key))].concat()))
}

/// A non-negative INTEGER: no needless zero in front, one where the first bit would be a sign.
fn integer(big_endian: &[u8]) -> Vec<u8> {
    let start = big_endian.iter().position(|byte| *byte != 0).unwrap_or(big_endian.len().saturating_sub(1));
    let digits = &big_endian[start..];
    let sign: &[u8] = if digits.first().is_none_or(|byte| *byte >= 0x80) { &[0] } else { &[] };
    tlv(0x02, &[sign, digits].concat())
}

/// One DER value: tag, length, content.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let digits = length.to_be_bytes();
        let digits = &digits[length.leading_zeros() as usize / 8..];
        out.push(0x80 | digits.len() as u8);
        out.extend(digits);
    }
    out.extend(content);
    out
}
