//! The members of users and of clients, one row each. The structs, the command-line flags, discovery and
//! `server/docs` follow from these rows; the rules of the members are in the modules of users and clients.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::jose::{SigningAlg, assertion_algorithms};
use crate::model::client_values::{
    AssertionAudiencePolicy, AuthMethod, GrantType, ReplacedSecret, ResponseType, one_of,
};
use crate::model::redirect_uri::RegisteredRedirectUri;
use crate::model::scope::Scopes;

/// The type of a member in JSON and in TOML, and the form of its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberType {
    /// A string, as the value of the flag.
    Text,
    /// A list of strings. The flag can be repeated.
    List,
    /// A number that is not negative, as the value of the flag.
    Number,
    /// `true` or `false`. The flag has no value and sets `true`.
    Boolean,
    /// `true` or `false`. The flag has no value and sets `false`.
    BooleanOff,
    /// A string. The flag has no value and sets this one.
    Choice(&'static str),
    /// A JWK Set. The value of the flag is a file that contains it.
    KeySet,
}

/// A row of the table of members.
#[derive(Debug)]
pub struct MemberRow {
    /// Name in the admin API and in `trefoil.toml`.
    pub name: &'static str,
    /// Type.
    pub kind: MemberType,
    /// Command-line flag, without `--`. `None` if no command sets the member.
    pub flag: Option<&'static str>,
    /// Placeholder of the value in the help text.
    pub value: &'static str,
    /// Default, as documented.
    pub default: &'static str,
    /// The effect of the member.
    pub meaning: &'static str,
    /// The accepted values, if specifications enumerate them.
    pub values: fn() -> Vec<&'static str>,
    /// Help text of the flag, if it differs from the meaning.
    pub help: &'static str,
    /// Scope that grants access to the member, if it is a claim (OpenID Connect Core section 5.4).
    pub scope: Option<&'static str>,
}

impl MemberRow {
    /// The effect of the member with the accepted values, without a full stop.
    pub fn description(&self) -> String {
        let meaning = self.meaning.trim().trim_end_matches('.');
        match &(self.values)()[..] {
            [] => meaning.to_owned(),
            values => format!("{meaning}: {}", one_of(values)),
        }
    }

    /// The columns that a row can leave out.
    const DEFAULT: Self = Self {
        name: "",
        kind: MemberType::Text,
        flag: None,
        value: "TEXT",
        default: "none",
        meaning: "",
        values: Vec::new,
        help: "",
        scope: None,
    };
}

/// A value of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ClaimValue<'a> {
    /// A string.
    Text(&'a str),
    /// `true` or `false`.
    Boolean(bool),
}

/// A Rust type of a claim.
trait ClaimType: Sized {
    const KIND: MemberType;
    fn as_claim(&self) -> ClaimValue<'_>;
    fn from_json(value: Value) -> Option<Self>;
}

impl ClaimType for String {
    const KIND: MemberType = MemberType::Text;

    fn as_claim(&self) -> ClaimValue<'_> {
        ClaimValue::Text(self)
    }

    fn from_json(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl ClaimType for bool {
    const KIND: MemberType = MemberType::Boolean;

    fn as_claim(&self) -> ClaimValue<'_> {
        ClaimValue::Boolean(*self)
    }

    fn from_json(value: Value) -> Option<Self> {
        value.as_bool()
    }
}

/// Declares [`StandardClaims`]. A row is a member of it, with the columns of [`MemberRow`].
macro_rules! claims {
    ($($(#[doc = $meaning:literal])+ $claim:ident: $type:ty { $($column:ident: $value:expr),+ $(,)? })+) => {
        /// Standard claims of a user (OpenID Connect Core section 5.1).
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct StandardClaims {
            $($(#[doc = $meaning])+ #[serde(skip_serializing_if = "Option::is_none")] pub $claim: Option<$type>,)+
        }

        /// The claims, in the order of the table.
        pub const CLAIMS: &[MemberRow] = &[$(MemberRow {
            name: stringify!($claim),
            kind: <$type as ClaimType>::KIND,
            meaning: concat!($($meaning),+),
            $($column: $value,)+
            ..MemberRow::DEFAULT
        }),+];

        impl StandardClaims {
            /// The claims that have a value, with their rows.
            pub fn values(&self) -> impl Iterator<Item = (&'static MemberRow, ClaimValue<'_>)> {
                let values = [$(self.$claim.as_ref().map(ClaimType::as_claim)),+];
                CLAIMS.iter().zip(values).filter_map(|(row, value)| Some((row, value?)))
            }

            /// Sets a claim, or removes it with `null`. Returns `false` if the value has another type, or if
            /// there is no such claim.
            pub fn set(&mut self, name: &str, value: Value) -> bool {
                match name {
                    $(stringify!($claim) => set_claim(&mut self.$claim, value),)+
                    _ => false,
                }
            }
        }
    };
}

fn set_claim<T: ClaimType>(claim: &mut Option<T>, value: Value) -> bool {
    *claim = match value {
        Value::Null => None,
        value => match T::from_json(value) {
            None => return false,
            value => value,
        },
    };
    true
}

claims! {
    /// Full name.
    name: String { flag: Some("name"), value: "NAME", scope: Some("profile") }
    /// Given name.
    given_name: String { flag: Some("given-name"), value: "NAME", scope: Some("profile") }
    /// Family name.
    family_name: String { flag: Some("family-name"), value: "NAME", scope: Some("profile") }
    /// Name by which the user wants to be called; the user name.
    preferred_username: String { scope: Some("profile") }
    /// E-mail address.
    email: String { flag: Some("email"), value: "ADDRESS", scope: Some("email") }
    /// Whether the e-mail address is verified.
    email_verified: bool { flag: Some("email-verified"), scope: Some("email") }
    /// Phone number.
    phone_number: String { flag: Some("phone-number"), value: "NUMBER", scope: Some("phone") }
    /// Whether the phone number is verified.
    phone_number_verified: bool { flag: Some("phone-number-verified"), scope: Some("phone") }
}

/// The scopes that a user may grant unless an administrator changes them. `offline_access` and
/// `online_access` grant access to no data: they extend the session with the user's applications.
pub const DEFAULT_SCOPES: &str = "openid profile email phone offline_access online_access";

/// The further members of a user.
const USER_RIGHTS: &[MemberRow] = &[
    MemberRow {
        name: "allowed_scopes",
        flag: Some("allowed-scopes"),
        value: "SCOPES",
        default: DEFAULT_SCOPES,
        meaning: "Scopes that the user may grant, separated by spaces.",
        ..MemberRow::DEFAULT
    },
    MemberRow {
        name: "fhir_user",
        flag: Some("fhir-user"),
        value: "REFERENCE",
        meaning: "FHIR resource that represents the user, such as Patient/p1. A RelatedPerson or Person gives access to its patients.",
        ..MemberRow::DEFAULT
    },
    MemberRow {
        name: "patients",
        kind: MemberType::List,
        flag: Some("patient"),
        value: "ID",
        meaning: "Further patients whose data the user may read, by id.",
        ..MemberRow::DEFAULT
    },
    MemberRow {
        name: "groups",
        kind: MemberType::List,
        flag: Some("group"),
        value: "ID",
        meaning: "Groups whose members are patients of the user, by id.",
        ..MemberRow::DEFAULT
    },
    MemberRow {
        name: "own_claims",
        kind: MemberType::List,
        flag: Some("claim"),
        value: "NAME=VALUE",
        meaning: "Values of the claims that `[[claim]]` declares, as NAME=VALUE; several values of a name are a list.",
        ..MemberRow::DEFAULT
    },
    MemberRow {
        name: "administrator",
        kind: MemberType::Boolean,
        flag: Some("administrator"),
        default: "false",
        meaning: "Whether the user may administer the server.",
        ..MemberRow::DEFAULT
    },
    MemberRow {
        name: "disabled",
        kind: MemberType::Boolean,
        default: "false",
        meaning: "Whether sign-in and all tokens of the user are refused.",
        ..MemberRow::DEFAULT
    },
];

/// The members of a user that can be changed.
pub fn user_members() -> impl Iterator<Item = &'static MemberRow> {
    // The user name sets `preferred_username`.
    CLAIMS.iter().filter(|row| row.flag.is_some()).chain(USER_RIGHTS)
}

/// The members of a client.
pub fn client_members() -> impl Iterator<Item = &'static MemberRow> {
    CLIENT_MEMBERS.iter()
}

/// The claims of a user that some scopes grant access to.
#[derive(Debug)]
pub(super) struct GrantedClaims<'a> {
    pub(super) claims: &'a StandardClaims,
    pub(super) scopes: &'a Scopes,
}

impl Serialize for GrantedClaims<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_granted = |row: &MemberRow| row.scope.is_some_and(|scope| self.scopes.contains(scope));
        let rows = self.claims.values().filter(|(row, _)| is_granted(row));
        serializer.collect_map(rows.map(|(row, value)| (row.name, value)))
    }
}

/// Declares [`Client`] and [`ClientMetadata`]. The rows of `stored` are members of both. The rows of
/// `checked` are members of the metadata only: `client_metadata` converts them to `fields` of the client.
macro_rules! client_members {
    (
        fields { $($(#[$attribute:meta])* $field:ident: $field_type:ty,)+ }
        checked {
            $($(#[doc = $meaning:literal])+ $(#[serde($serde:ident)])? $member:ident: $type:ty {
                $($column:ident: $value:expr),+ $(,)?
            })+
        }
        stored {
            $($(#[doc = $stored_meaning:literal])+ $(#[serde(rename = $stored_name:literal)])? $stored:ident: $stored_type:ty {
                $($stored_column:ident: $stored_value:expr),+ $(,)?
            })+
        }
    ) => {
        /// A registered client.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Client {
            $($(#[$attribute])* pub $field: $field_type,)+
            $($(#[doc = $stored_meaning])+ #[serde(default $(, rename = $stored_name)?)] pub $stored: $stored_type,)+
        }

        /// Unchecked metadata of one client. [`ClientMetadata::into_client`] checks the metadata and sets the
        /// defaults.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct ClientMetadata {
            $($(#[doc = $meaning])+ $(#[serde($serde)])? pub $member: $type,)+
            $($(#[doc = $stored_meaning])+ pub $stored: $stored_type,)+
        }

        const CLIENT_MEMBERS: &[MemberRow] = &[
            $(MemberRow {
                name: stringify!($member),
                meaning: concat!($($meaning),+),
                $($column: $value,)+
                ..MemberRow::DEFAULT
            },)+
            $(MemberRow {
                name: stringify!($stored),
                meaning: concat!($($stored_meaning),+),
                $($stored_column: $stored_value,)+
                ..MemberRow::DEFAULT
            },)+
        ];

        impl ClientMetadata {
            /// Returns a client with the members of the metadata that are stored as they are.
            pub(super) fn stored_members(&self, client_id: &str) -> Client {
                Client { $($stored: self.$stored.clone(),)+ ..Client::new(client_id) }
            }

            /// Returns metadata with the members of the client that are stored as they are.
            pub(super) fn of_stored_members(client: &Client) -> Self {
                Self { $($stored: client.$stored.clone(),)+ ..Self::default() }
            }
        }
    };
}

client_members! {
    fields {
        /// Public identifier.
        client_id: String,
        /// Name that is displayed to users.
        name: String,
        /// URIs to which answers to authorization requests are sent.
        #[serde(default)]
        redirect_uris: Vec<RegisteredRedirectUri>,
        /// URIs for the redirect after sign-out.
        #[serde(default)]
        post_logout_redirect_uris: Vec<RegisteredRedirectUri>,
        /// Response types of the authorization endpoint.
        #[serde(default)]
        response_types: Vec<ResponseType>,
        /// Grant types of the token endpoint.
        #[serde(default)]
        grant_types: Vec<GrantType>,
        /// Methods with which the client may authenticate itself.
        auth_methods: Vec<AuthMethod>,
        /// SHA-256 of each valid secret in base64url.
        #[serde(default)]
        secret_digests: Vec<String>,
        /// Secrets that were replaced and stay valid for some time.
        #[serde(default)]
        replaced_secrets: Vec<ReplacedSecret>,
        /// Public keys for `private_key_jwt`, registered by value.
        #[serde(default)]
        jwks: Vec<Value>,
        /// Algorithms accepted for client assertions. Empty means RS384 and ES384.
        #[serde(default)]
        assertion_algs: Vec<String>,
        /// Audiences that a client assertion may have.
        #[serde(default)]
        assertion_audience: AssertionAudiencePolicy,
        /// Algorithm of ID tokens. `None` means RS256.
        #[serde(default)]
        id_token_alg: Option<String>,
        /// Scopes that the client may request.
        scopes: Scopes,
        /// `true` if authorization requests must use PKCE.
        pkce_required: bool,
        /// `true` for a native app, whose loopback redirect URI may have any port (RFC 8252).
        #[serde(default)]
        native: bool,
        /// `true` if the user must consent. `false` for first-party clients.
        #[serde(default)]
        consent: bool,
        /// `true` if the client is part of the demo project.
        #[serde(default)]
        demo: bool,
        /// `true` if the client is declared in `trefoil.toml`.
        #[serde(default)]
        declared: bool,
        /// Random id of this registration, and a claim of its tokens. If the client is deleted and another is
        /// added under the same id, the tokens of the deleted client stay invalid.
        #[serde(default)]
        generation: String,
    }
    checked {
        /// Name displayed to users.
        client_name: Option<String> { flag: Some("name"), value: "NAME", default: "the client id" }
        /// Redirect URIs.
        redirect_uris: Vec<String> { kind: MemberType::List, flag: Some("redirect-uri"), value: "URI" }
        /// URIs to which the browser may be redirected after sign-out.
        post_logout_redirect_uris: Vec<String> {
            kind: MemberType::List,
            flag: Some("post-logout-redirect-uri"),
            value: "URI",
        }
        /// Response types.
        response_types: Vec<String> {
            kind: MemberType::List,
            flag: Some("response-type"),
            value: "TYPE",
            default: "code if there is a redirect URI",
            values: || ResponseType::NAMES.to_vec(),
        }
        /// Grant types.
        grant_types: Vec<String> {
            kind: MemberType::List,
            flag: Some("grant-type"),
            value: "TYPE",
            default: "derived from the other members",
            values: || GrantType::NAMES.to_vec(),
        }
        /// The only one of `token_endpoint_auth_methods`.
        #[serde(skip_serializing)]
        token_endpoint_auth_method: Option<String> { default: "see `token_endpoint_auth_methods`" }
        /// Authentication methods.
        token_endpoint_auth_methods: Vec<String> {
            kind: MemberType::List,
            flag: Some("auth-method"),
            value: "METHOD",
            default: "derived from keys and secret",
            values: || AuthMethod::NAMES.to_vec(),
        }
        /// The only one of `token_endpoint_auth_signing_algs`.
        #[serde(skip_serializing)]
        token_endpoint_auth_signing_alg: Option<String> { default: "see `token_endpoint_auth_signing_algs`" }
        /// Algorithms of client assertions.
        token_endpoint_auth_signing_algs: Vec<String> {
            kind: MemberType::List,
            flag: Some("assertion-alg"),
            value: "ALGORITHM",
            default: "RS384 and ES384",
            values: || assertion_algorithms().collect(),
        }
        /// Audience of client assertions: token_endpoint_or_issuer, or issuer for the issuer only, as a
        /// string.
        assertion_audience: Option<String> {
            flag: Some("assertion-audience"),
            value: "AUDIENCE",
            default: "token_endpoint_or_issuer",
        }
        /// Public JWK Set, by value.
        jwks: Option<Value> {
            kind: MemberType::KeySet,
            flag: Some("jwks"),
            value: "FILE",
            help: "File with the public JWK Set.",
        }
        /// Scopes that the client may request, separated by spaces.
        scope: Option<String> { flag: Some("scope"), value: "SCOPES", default: "openid" }
        /// Algorithm of ID tokens.
        id_token_signed_response_alg: Option<String> {
            flag: Some("id-token-alg"),
            value: "ALGORITHM",
            default: "RS256",
            values: || SigningAlg::ALL.map(SigningAlg::name).to_vec(),
        }
        /// `web`, or `native` for an app whose loopback redirect URIs match with any port (RFC 8252).
        application_type: Option<String> {
            kind: MemberType::Choice("native"),
            flag: Some("native"),
            help: "Native app: loopback redirect URIs match with any port.",
            default: "web",
        }
        /// Whether PKCE is required. A public client must use it.
        pkce_required: Option<bool> {
            kind: MemberType::BooleanOff,
            flag: Some("pkce-optional"),
            help: "Do not require PKCE (confidential clients only).",
            default: "true",
        }
        /// Whether users need not consent.
        first_party: bool { kind: MemberType::Boolean, flag: Some("first-party"), default: "false" }
    }
    stored {
        /// URL of the public JWK Set.
        jwks_uri: Option<String> { flag: Some("jwks-uri"), value: "URL" }
        /// Whether ID tokens contain all claims of the granted scopes, also if the client can read them from
        /// userinfo.
        claims_in_id_token: bool {
            kind: MemberType::Boolean,
            flag: Some("claims-in-id-token"),
            default: "false",
        }
        /// Whether authorization requests must be pushed (PAR, RFC 9126 section 6).
        #[serde(rename = "require_par")]
        require_pushed_authorization_requests: bool {
            kind: MemberType::Boolean,
            flag: Some("require-par"),
            default: "false",
        }
        /// Whether all tokens are bound to a key (DPoP, RFC 9449 section 5.2).
        #[serde(rename = "dpop_bound")]
        dpop_bound_access_tokens: bool { kind: MemberType::Boolean, flag: Some("dpop-bound"), default: "false" }
        /// Whether refresh tokens are issued also without `offline_access`.
        always_refresh: bool { kind: MemberType::Boolean, flag: Some("always-refresh"), default: "false" }
        /// Seconds, 0 to 60, during which a used refresh token returns its successor again.
        refresh_grace_s: Option<u32> {
            kind: MemberType::Number,
            flag: Some("refresh-grace-s"),
            value: "SECONDS",
            default: "10 for public clients, 0 for others",
        }
        /// Lifetime of access tokens in seconds, 60 to 86400. Access tokens of the token flow always have
        /// 3600 seconds.
        access_token_lifetime_s: Option<u32> {
            kind: MemberType::Number,
            flag: Some("access-token-lifetime-s"),
            value: "SECONDS",
            default: "that of the server",
        }
        /// Lifetime of ID tokens in seconds, 60 to 86400.
        id_token_lifetime_s: Option<u32> {
            kind: MemberType::Number,
            flag: Some("id-token-lifetime-s"),
            value: "SECONDS",
            default: "that of the server",
        }
        /// Lifetime of refresh tokens in seconds, 60 to 31622400, counted from the first one of a grant.
        refresh_token_lifetime_s: Option<u32> {
            kind: MemberType::Number,
            flag: Some("refresh-token-lifetime-s"),
            value: "SECONDS",
            default: "that of the server",
        }
        /// Lifetime of authorization codes in seconds, 10 to 300.
        authorization_code_lifetime_s: Option<u32> {
            kind: MemberType::Number,
            flag: Some("authorization-code-lifetime-s"),
            value: "SECONDS",
            default: "300, and 60 with `fapi2`",
        }
        /// Whether the client follows the FAPI 2.0 Security Profile: pushed requests, `private_key_jwt` with
        /// the issuer as the audience, tokens bound to a key, codes of at most 60 seconds, and refresh tokens
        /// that are not replaced.
        fapi2: bool { kind: MemberType::Boolean, flag: Some("fapi2"), default: "false" }
        /// Maximum age of a sign-in in seconds, for requests without `max_age` (OpenID Connect Registration
        /// section 2).
        default_max_age: Option<u32> { kind: MemberType::Number, flag: Some("default-max-age"), value: "SECONDS" }
        /// Whether the client may introspect tokens of other clients.
        introspects: bool { kind: MemberType::Boolean, flag: Some("introspects"), default: "false" }
        /// Groups that the client may export, by id.
        groups: Option<Vec<String>> { kind: MemberType::List, flag: Some("group"), value: "ID", default: "all" }
    }
}
