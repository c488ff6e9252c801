//! The facts about a user, as people read them.

use identity::model::members::ClaimValue;
use identity::model::provider::IdentityProvider;
use identity::model::user::User;
use identity::sign_in::sign_in_methods::SignInMethods;

/// Names and values of `trefoil user show`, in the order of display.
pub fn user_facts(
    user: &User,
    methods: &SignInMethods,
    providers: &[IdentityProvider],
) -> Vec<(String, String)> {
    let time = fhir::instant::format;
    let yes = |it: bool| if it { "yes" } else { "no" };
    let ids = |ids: &[String]| if ids.is_empty() { "-".to_owned() } else { ids.join(" ") };
    let mut rows: Vec<(String, String)> = [
        ("user", user.username.clone()),
        ("sub", user.sub.clone()),
        ("fhir user", user.fhir_user.clone().unwrap_or_else(|| "-".to_owned())),
        ("patients", ids(&user.patients)),
        ("groups", ids(&user.groups)),
        ("claims", ids(&user.own_claims)),
        ("allowed scopes", user.allowed_scopes.to_string()),
        ("disabled", yes(user.disabled).to_owned()),
        ("administrator", yes(user.administrator).to_owned()),
        ("password", yes(user.password.is_some()).to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    rows.extend(user.claims.values().map(|(row, value)| {
        let value = match value {
            ClaimValue::Text(text) => text,
            ClaimValue::Boolean(value) => yes(value),
        };
        (row.name.replace('_', " "), value.to_owned())
    }));
    if let Some(mapped) = &user.mapped {
        let values = mapped.values.iter().flatten().map(|(claim, value)| format!("{claim}={value}"));
        let passed_on = mapped.passed_on.iter().map(|(name, value)| format!("{name}: {value}"));
        let references: Vec<_> = values.chain(mapped.fhir_user.clone()).chain(passed_on).collect();
        let of = mapped.issuer.as_deref().unwrap_or("a provider, before an upgrade");
        let until = match providers.iter().find(|provider| mapped.issuer.as_ref() == Some(&provider.issuer)) {
            Some(provider) => format!("until {}", time(mapped.ends(provider.rights_max_age))),
            None => "which count while this provider is configured".to_owned(),
        };
        rows.push(("rights".to_owned(), format!("{}  from {of}, {until}", references.join(" "))));
    }
    for passkey in &methods.passkeys {
        let used =
            passkey.last_used.map_or("never used".to_owned(), |used| format!("last used {}", time(used)));
        let text = format!("{}  {}  since {}, {used}", passkey.id, passkey.name, time(passkey.since));
        rows.push(("passkey".to_owned(), text));
    }
    rows.push(("recovery codes".to_owned(), methods.recovery_codes.to_string()));
    for link in &methods.linked_accounts {
        let text = format!("{}  {} at {}  since {}", link.id, link.label, link.provider, time(link.since));
        rows.push(("linked account".to_owned(), text));
    }
    for link in &methods.removed_accounts {
        let removed = link.removed.map(time).unwrap_or_default();
        let text = format!("{}  {} at {}  since {removed}; refused", link.id, link.label, link.provider);
        rows.push(("removed account".to_owned(), text));
    }
    // Otherwise an administrator would look for the reason why a claim has no effect.
    if user.is_mapped && !user.set_by_hand.is_empty() {
        let names: Vec<_> = user.set_by_hand.iter().map(String::as_str).collect();
        rows.push((
            "set by hand".to_owned(),
            format!("{}  (the provider does not change these)", names.join(" ")),
        ));
    }
    rows
}
