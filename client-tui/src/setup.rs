//! Setup of a profile: finds the addresses of a server, registers clients, makes a key, and stores the
//! profile.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::profile::ProfileError;
use crate::api::{Api, ApiError};
use crate::args::{SetupArgs, USER_SCOPE};
use crate::clock::ClientClock;
use crate::failure::CommandFailure;
use crate::private_files::{create_private_folder, replace_private_file};
use crate::profile::Profile;
use crate::profile::demo::{EndpointFile, read_json};
use crate::profile::file::{ProfileFile, ProfileSettings};

/// Redirect URIs of the client for sign-in, without the port.
const REDIRECTS: [&str; 2] = ["http://localhost/callback", "http://127.0.0.1/callback"];
/// Scopes of the backend client that setup registers.
const BACKEND_SCOPE: &str = "system/*.read";

#[derive(Debug)]
pub struct StoredProfile {
    pub name: String,
    pub settings: ProfileSettings,
    /// Actions that were performed, for the user.
    pub actions: Vec<String>,
}

/// Sets up a profile and stores it. `settings` are the options of the command line that are settings of a
/// profile.
///
/// # Errors
/// The failure of a request, of a command, or of a file.
pub async fn run(
    args: &SetupArgs,
    settings: ProfileSettings,
    mut file: ProfileFile,
) -> Result<StoredProfile, CommandFailure> {
    let mut settings = settings.with_absolute_paths();
    let mut actions = Vec::new();
    match (&args.data, &args.url) {
        (Some(data), _) => {
            from_data_folder(data, args.name.as_deref(), &file, &mut settings, &mut actions)?;
        }
        (None, Some(url)) => from_address(url, &mut settings, &mut actions).await?,
        (None, None) => return Err(CommandFailure::Usage("URL or --data DIR is required".to_owned())),
    }
    let name = args.name.clone().unwrap_or_else(|| profile_name(&settings));
    file.store(&name, settings.clone())?;
    Ok(StoredProfile { name, settings, actions })
}

/// The host and port of the server as a name.
fn profile_name(settings: &ProfileSettings) -> String {
    let url = settings.base_url.as_deref().and_then(|url| url::Url::parse(url).ok());
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or("server").to_owned();
    match url.and_then(|url| url.port()) {
        Some(port) => format!("{host}-{port}"),
        None => host,
    }
}

/// Reads the addresses from the data folder of a Trefoil server, and registers the missing clients with its
/// command line.
fn from_data_folder(
    data: &Path,
    name: Option<&str>,
    file: &ProfileFile,
    settings: &mut ProfileSettings,
    actions: &mut Vec<String>,
) -> Result<(), CommandFailure> {
    let addresses = data.join("endpoint.json");
    if !addresses.exists() {
        return Err(CommandFailure::NoServer(data.display().to_string()));
    }
    let endpoint: EndpointFile = read_json(&addresses)?;
    settings.base_url = Some(endpoint.base_url);
    settings.fhir_base = Some(endpoint.fhir_base);
    settings.ca = settings.ca.take().or(endpoint.ca);
    take_over_clients(data, name, file, settings, actions);
    // Several people may set up profiles on one server, so that ids must not collide.
    let suffix = random_suffix()?;
    if settings.client_id.is_none() {
        let id = format!("trefoil-tui-{suffix}");
        let scope = format!("{USER_SCOPE} offline_access");
        let grants = ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"];
        // The listener of a sign-in has another port each time, which only a native client may use.
        let mut words = vec!["client", "add", &id, "--name", "Trefoil terminal client", "--native"];
        words.extend(REDIRECTS.iter().flat_map(|redirect| ["--redirect-uri", *redirect]));
        words.extend(["--scope", &scope]);
        words.extend(grants.iter().flat_map(|grant| ["--grant-type", *grant]));
        run_trefoil(data, &words)?;
        settings.scope = Some(scope);
        actions.push(format!("registered the client {id} for sign-in"));
        settings.client_id = Some(id);
    }
    if settings.backend_client.is_none() {
        let id = format!("trefoil-tui-backend-{suffix}");
        let key = new_key()?;
        let write_error = |path: &Path, error| ProfileError::Write { path: path.to_owned(), error };
        let folder = file.folder().join("keys");
        create_private_folder(&folder).map_err(|error| write_error(&folder, error))?;
        let (private, public) = (folder.join(format!("{id}.pem")), folder.join(format!("{id}.jwks.json")));
        replace_private_file(&private, key.pem.as_bytes()).map_err(|error| write_error(&private, error))?;
        replace_private_file(&public, key.public.to_string().as_bytes())
            .map_err(|error| write_error(&public, error))?;
        let public_path = public.to_string_lossy();
        let words = ["client", "add", &id, "--auth-method", "private_key_jwt", "--jwks", &public_path];
        let grant = ["--grant-type", "client_credentials", "--scope", BACKEND_SCOPE];
        run_trefoil(data, &[&words[..], &grant].concat())?;
        actions.push(format!("made the key {} and registered the backend client {id}", private.display()));
        settings.backend_client = Some(id);
        settings.backend_key = Some(private);
        settings.backend_alg = Some("ES384".to_owned());
        settings.backend_kid = Some(key.kid);
    }
    Ok(())
}

/// Takes over the clients of the profile that this setup replaces, so that a second setup registers no
/// others. Clients that the server no longer has are registered again.
fn take_over_clients(
    data: &Path,
    name: Option<&str>,
    file: &ProfileFile,
    settings: &mut ProfileSettings,
    actions: &mut Vec<String>,
) {
    let name = name.map_or_else(|| profile_name(settings), str::to_owned);
    let Ok(profile) = file.profile(&name) else { return };
    if profile.base_url != settings.base_url {
        return;
    }
    let exists = |id: &Option<String>| {
        id.as_deref().filter(|id| run_trefoil(data, &["client", "show", id]).is_ok()).map(str::to_owned)
    };
    if settings.client_id.is_none()
        && let Some(id) = exists(&profile.client_id)
    {
        // Earlier versions registered clients that could not sign in with a browser.
        let redirects = REDIRECTS.iter().flat_map(|redirect| ["--redirect-uri", *redirect]);
        let words: Vec<_> = ["client", "change", &id, "--native"].into_iter().chain(redirects).collect();
        actions.push(match run_trefoil(data, &words) {
            Ok(()) => format!("kept the client {id} for sign-in"),
            Err(error) => format!("kept the client {id} for sign-in, which was not changed: {error}"),
        });
        (settings.client_id, settings.scope) = (Some(id), settings.scope.take().or(profile.scope));
    }
    if settings.backend_client.is_none()
        && profile.backend_key.as_deref().is_some_and(Path::exists)
        && let Some(id) = exists(&profile.backend_client)
    {
        actions.push(format!("kept the backend client {id} and its key"));
        settings.backend_client = Some(id);
        settings.backend_key = profile.backend_key;
        (settings.backend_alg, settings.backend_kid) = (profile.backend_alg, profile.backend_kid);
    }
}

/// Runs the server's command line, which uses its administration socket.
fn run_trefoil(data: &Path, words: &[&str]) -> Result<(), CommandFailure> {
    let failed =
        |reason: String| CommandFailure::Usage(format!("'trefoil {}' failed: {reason}", words.join(" ")));
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("trefoil"));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("trefoil"));
    let output = Command::new(&program).args(words).arg("--data").arg(data).output();
    let output = output.map_err(|error| failed(format!("{}: {error}", program.display())))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Finds out whether the address is an issuer or a base address of FHIR, and registers a client if the server
/// offers registration (RFC 7591).
async fn from_address(
    url: &str,
    settings: &mut ProfileSettings,
    actions: &mut Vec<String>,
) -> Result<(), CommandFailure> {
    let probe = api_at(url, settings.ca.as_deref())?;
    let base = probe.profile().base_url.clone();
    let smart = get_json(&probe, &format!("{base}/.well-known/smart-configuration")).await?;
    // Documentation of servers names the one address or the other, and users paste what they find.
    let is_fhir = match &smart {
        Some(_) => true,
        None => get_json(&probe, &format!("{base}/metadata"))
            .await?
            .is_some_and(|metadata| metadata["resourceType"] == "CapabilityStatement"),
    };
    let issuer = smart.as_ref().and_then(|smart| smart["issuer"].as_str()).map(str::to_owned);
    settings.base_url = Some(if is_fhir { issuer.unwrap_or_else(|| origin(&base)) } else { base.clone() });
    settings.fhir_base = if is_fhir { Some(base.clone()) } else { settings.fhir_base.take() };
    let base_url = settings.base_url.clone().unwrap_or(base);
    actions.push(format!("found the issuer {base_url}"));
    let api = api_at(&base_url, settings.ca.as_deref())?;
    match api.openid().await {
        Err(error) => {
            let anonymous = settings.client_id.is_none() && settings.backend_client.is_none();
            let is_absent = matches!(error, ApiError::Refused { status: StatusCode::NOT_FOUND, .. });
            if !anonymous || !is_fhir || !is_absent {
                return Err(error.into());
            }
            actions.push(format!(
                "the server does not offer sign-in ({error}); requests are sent without a token"
            ));
        }
        Ok(openid) if settings.client_id.is_none() => match &openid.registration_endpoint {
            Some(endpoint) => {
                let scope = supported_scopes(&openid.scopes_supported);
                let id = register(&api, endpoint, &scope).await?;
                actions.push(format!("registered the client {id} with the scopes {scope}"));
                (settings.client_id, settings.scope) = (Some(id), settings.scope.take().or(Some(scope)));
            }
            None => actions.push(
                "the server offers no registration: register a public client with the redirect URI \
                 http://localhost/callback there, and run setup again with --client-id"
                    .to_owned(),
            ),
        },
        Ok(_) => {}
    }
    Ok(())
}

fn origin(url: &str) -> String {
    url::Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization())
}

fn api_at(url: &str, ca: Option<&Path>) -> Result<Api, CommandFailure> {
    let profile = Profile::at(url)?.with_certificates(ca)?;
    Ok(Api::new(profile, ClientClock::SYSTEM, Box::new(drop))?)
}

/// A document, or `None` if the server has none.
async fn get_json(api: &Api, url: &str) -> Result<Option<Value>, ApiError> {
    let response = api.fetch(url, HeaderMap::new()).await?;
    Ok(response.json(url).ok())
}

/// The scopes of this program that a server knows; all of them if the server does not say.
fn supported_scopes(supported: &[String]) -> String {
    let scopes = format!("{USER_SCOPE} offline_access");
    // `user/*.rs` contains the scopes of all types.
    let contains = |offered_scope: &String, scope: &str| {
        offered_scope == scope || scope.starts_with("user/") && offered_scope.starts_with("user/*.")
    };
    let is_known = |scope: &&str| supported.iter().any(|offered_scope| contains(offered_scope, scope));
    let offered: Vec<_> = scopes.split(' ').filter(is_known).collect();
    if offered.is_empty() { scopes } else { offered.join(" ") }
}

/// Registers a public native client (RFC 7591) and returns its id.
async fn register(api: &Api, endpoint: &str, scope: &str) -> Result<String, ApiError> {
    let metadata = json!({
        "client_name": "Trefoil terminal client",
        "application_type": "native",
        "redirect_uris": REDIRECTS,
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "scope": scope,
    });
    let response = api.post_json(endpoint, &metadata).await?;
    let registered: Value = response.json(endpoint)?;
    registered["client_id"].as_str().map(str::to_owned).ok_or_else(|| ApiError::Unexpected {
        url: endpoint.to_owned(),
        reason: "client_id is missing in the response".to_owned(),
    })
}

fn random_suffix() -> Result<String, CommandFailure> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| ApiError::Request(error.to_string()))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

struct NewKey {
    /// Private key as PKCS #8 in PEM.
    pem: String,
    /// JWK Set with the public key.
    public: Value,
    kid: String,
}

fn new_key() -> Result<NewKey, CommandFailure> {
    use aws_lc_rs::signature::{ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
    let failed = |_| ApiError::Request("the operating system has no randomness for a key".to_owned());
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING).map_err(failed)?;
    let document = pair.to_pkcs8v1().map_err(failed)?;
    // An uncompressed point: 0x04, x, y.
    let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
    let kid = URL_SAFE_NO_PAD.encode(&x[..9]);
    let coordinate = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let public = json!({ "keys": [{
        "kty": "EC", "crv": "P-384", "alg": "ES384", "use": "sig", "kid": kid, "x": coordinate(x), "y": coordinate(y),
    }]});
    let encoded = STANDARD.encode(document.as_ref());
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
    Ok(NewKey { pem, public, kid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scopes_that_the_server_knows_are_registered() {
        let scopes = |supported: &[&str]| {
            supported_scopes(&supported.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(scopes(&["openid", "offline_access", "address"]), "openid offline_access");
        assert_eq!(scopes(&["openid", "user/*.rs"]), "openid user/ValueSet.rs user/CodeSystem.rs");
        assert_eq!(scopes(&[]), format!("{USER_SCOPE} offline_access"));
        assert_eq!(scopes(&["launch"]), scopes(&[]), "the list of the server is not complete");
    }

    #[test]
    fn a_new_key_can_sign() {
        let key = new_key().unwrap();
        let read = crate::key::read(&key.pem, Some("ES384"), Some(&key.kid)).unwrap();
        assert_eq!(read.kid.as_deref(), key.public["keys"][0]["kid"].as_str());
        assert!(key.pem.lines().all(|line| line.len() <= 64));
    }
}
