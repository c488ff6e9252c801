//! The members of a profile: their names, types and meanings.

/// A member of a profile.
#[derive(Debug)]
pub struct ProfileMember {
    /// Name of the member.
    pub name: &'static str,
    /// Type of the value.
    pub kind: MemberKind,
    /// Meaning of the value.
    pub meaning: &'static str,
}

/// Type of the value of a member.
#[derive(Debug, Clone, Copy)]
pub enum MemberKind {
    /// A text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number above 0.
    Number,
    /// A list of texts.
    Texts,
    /// A table with some of these members.
    Table(&'static [&'static str]),
    /// A list of tables with some of these members.
    Tables(&'static [&'static str]),
    /// URLs by the name of an endpoint.
    Endpoints,
    /// Any value.
    Any,
}

use MemberKind::{Any, Endpoints, Flag, Number, Table, Tables, Text, Texts};

const USER: &[&str] = &["username", "password", "claims"];
const CLIENT: &[&str] = &[
    "client_id",
    "client_secret",
    "redirect_uris",
    "post_logout_redirect_uris",
    "grant_types",
    "scopes",
    "custom_scopes",
];
const BACKEND: &[&str] = &["client_id", "scopes", "alg", "jwk", "jwk_file"];

const fn member(name: &'static str, kind: MemberKind, meaning: &'static str) -> ProfileMember {
    ProfileMember { name, kind, meaning }
}

/// Members that configure the suite.
pub const SETTINGS: [ProfileMember; 12] = [
    member("base_url", Text, "URL of the authorization server: its issuer"),
    member("fhir_base", Text, "base URL of the FHIR interface"),
    member("ca", Text, "PEM file with certificates to trust in addition to those of the system"),
    member("anonymous", Flag, "true if the FHIR interface answers without a token"),
    member("pkce", Flag, "false if the server does not know code challenges (RFC 7636)"),
    member("tx_resources", Flag, "true if terminology operations accept the parameter `tx-resource`"),
    member("jobs", Number, "number of cases that run concurrently; 1 for a server that fails under load"),
    member(
        "poll_seconds",
        Number,
        "seconds between two requests that wait for the server, in place of its `Retry-After`: for a server of your own",
    ),
    member("endpoints", Endpoints, "URLs of endpoints that the metadata does not state, by name"),
    member(
        "sign_in",
        Table(&["username", "password", "approve"]),
        "names of the fields on the sign-in page: `username`, `password`; the button for consent: `approve`",
    ),
    member(
        "sign_in_requests",
        Tables(&["page", "get", "post", "put", "headers", "json", "form"]),
        "what the scripts of the sign-in pages send, if pages have no forms: requests with `get`, `post` or `put`, \
         `headers`, and `json` or `form`, of pages whose path begins with `page`. In them `$person.username`, \
         `$person.password`, `$page.NAME` (a parameter of the address), `$query` (all of them), `$answer.NAME` (a \
         member of the latest answer), `$html.NAME` (an input, a `meta` element or a member of JSON in the page) and \
         `$cookie.NAME` are replaced; in a NAME, `_` stands for each character that is not a letter or a digit. The \
         browser follows the last one",
    ),
    member(
        "tokens",
        Table(&["user", "system"]),
        "access tokens that are used instead of requested ones: `user`, `system`",
    ),
];

/// Members that rows use.
pub const MEMBERS: [ProfileMember; 22] = [
    member(
        "user",
        Table(USER),
        "the user who signs in, by default the first of `users`: `username`, `password`, `claims`",
    ),
    member("users", Tables(USER), "users: `username`, `password`, `claims`"),
    member(
        "public",
        Table(CLIENT),
        "public client: `client_id`, `redirect_uris`, `post_logout_redirect_uris`, `grant_types`, `scopes`, \
         `custom_scopes`",
    ),
    member("confidential", Table(CLIENT), "client with a secret: also `client_secret`"),
    member("native", Table(CLIENT), "public client with a loopback redirect URI, which requires PKCE"),
    member("third_party", Table(CLIENT), "client whose users must consent"),
    member("implicit", Table(CLIENT), "client that may use the implicit flow"),
    member("device", Table(CLIENT), "client that may use the device flow"),
    member("smart", Table(CLIENT), "SMART app"),
    member("bound", Table(CLIENT), "client whose tokens must be bound by DPoP"),
    member("pushed", Table(CLIENT), "client that must push its authorization requests"),
    member("retrying", Table(CLIENT), "client that may repeat a used refresh token"),
    member("resource_server", Table(CLIENT), "client that may introspect the tokens of all clients"),
    member("no_token_client", Table(CLIENT), "client that may not use the implicit flow"),
    member("no_code_client", Table(CLIENT), "client that may not use the code flow"),
    member(
        "backend",
        Tables(BACKEND),
        "clients of SMART Backend Services: `client_id`, `scopes`, `alg`, and `jwk` or `jwk_file`",
    ),
    member("groups", Texts, "ids of Groups that can be exported"),
    member("code_systems", Tables(&["id", "url"]), "code systems: `id`, `url`"),
    member("value_sets", Tables(&["id", "url"]), "value sets: `id`, `url`"),
    member(
        "members",
        Tables(&["value_set", "system", "code", "member", "display"]),
        "codes and whether a value set contains them: `value_set`, `system`, `code`, `member`, `display`",
    ),
    member(
        "subsumptions",
        Tables(&["system", "codeA", "codeB", "outcome"]),
        "pairs of codes: `system`, `codeA`, `codeB`, `outcome`",
    ),
    member("declared", Any, "clients that a Trefoil server reads from its configuration"),
];
