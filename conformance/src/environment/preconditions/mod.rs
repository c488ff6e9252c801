//! Sets up the initial states of cases. A state that a case can change is set up for each case, and other
//! states once for a run.
//!
//! | module | contents |
//! |---|---|
//! | `context` | the state of one case |
//! | `shared_states` | the states that all cases share |
//! | `sign_in` | sessions and authorization codes of users |
//! | `tokens` | tokens, device codes and pushed requests |
//! | `accounts` | users and clients that are created for a case |
//! | `brought_terminology` | the terminology of the demo project on servers that lack it |
//! | `exports` | exports: completed, failed and expired |
//! | `servers` | separate servers: with other settings, with other data, or at a later time |

mod accounts;
mod brought_terminology;
mod context;
mod exports;
mod servers;
mod shared_states;
mod sign_in;
mod tokens;

pub use self::shared_states::SharedStates;
use super::TestEnvironment;
use super::applications::{self, backend_token, member, person};
use super::error::SetupError;
use super::passkeys;
use super::target::TestTarget;
use crate::spec::preconditions;
use accounts::{basic_client, fresh_user, invited_user, own_user, removed_user};
pub use brought_terminology::has_demo_project;
pub use context::CaseContext;
use exports::{export, failed_export, minute_old_export};
use servers::{aged, ask_of, branded_pages, configured, earlier_sign_in, releases, turned_keys};
use sign_in::{
    administrator, at_sign_in, code, confidential_code, declared_codes, first_session, lone_user,
    refreshable_code, session,
};
use tokens::{created_client_token, device_code, dpop_key, dpop_token, implicit, system_token, tokens};

/// Sets up a state: variables and cookies of the case.
///
/// # Errors
/// [`SetupError`] if the target lacks what is needed or does not behave as expected, or if a variable that
/// `preconditions.toml` names is not set.
pub async fn set_up(
    environment: &TestEnvironment,
    name: &str,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    let result = perform(environment, name, context).await;
    if let Some(own) = &context.own {
        environment.target.secrets.add_server(&own.1.secrets);
    }
    result?;
    let sets = preconditions::named(name).map(|row| &*row.sets).unwrap_or_default();
    match sets.iter().find(|variable| context.vars.get(variable).is_none()) {
        Some(missing) => Err(SetupError::Failed(format!("the setup did not set ${missing}"))),
        None => Ok(()),
    }
}

async fn perform(
    environment: &TestEnvironment,
    name: &str,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    let (shared, target) = (&environment.shared, &environment.target);
    match name {
        "demo-data" => demo_data(target)?,
        "demo-terminology" => {
            if !has_demo_project(target) {
                shared.terminology.get_or_try_init(|| brought_terminology::bring(environment)).await?;
            }
        }
        "providers" => context.vars.set("providers", environment.local()?.providers.vars()),
        "browser-at-sign-in" => at_sign_in(target, context).await?,
        "signed-in" => context.cookies = first_session(environment).await?,
        "freshly-signed-in" => context.cookies = session(target, "users.1").await?,
        "earlier-sign-in" => earlier_sign_in(environment, context).await?,
        "lone-user" => lone_user(environment, context).await?,
        "code" => context.set_code(code(environment, &context.vars, "public", true).await?),
        "plain-code" => context.set_code(code(environment, &context.vars, "public", false).await?),
        "confidential-code" => confidential_code(environment, context).await?,
        "token" => context.set_tokens(shared.token.get_or_try_init(|| tokens(environment, name)).await?),
        "openid-token" => {
            context.set_tokens(shared.openid.get_or_try_init(|| tokens(environment, name)).await?)
        }
        "notes-token" => {
            context.set_tokens(shared.notes.get_or_try_init(|| tokens(environment, name)).await?)
        }
        "implicit-token" => {
            context.set_tokens(shared.implicit.get_or_try_init(|| implicit(environment)).await?)
        }
        "fresh-token" => context.set_tokens(&tokens(environment, name).await?),
        "refresh-token" => {
            let code = refreshable_code(environment, &context.vars).await?;
            context.set_tokens(&applications::redeem(target, "confidential", &code).await?);
        }
        "dpop-key" => dpop_key(context)?,
        "dpop-token" => dpop_token(environment, context).await?,
        "fresh-user" => fresh_user(environment, context, &[]).await?,
        "one-time-link" => context.vars.set("invited", invited_user(environment).await?),
        "passkey" | "required-passkey" => {
            fresh_user(environment, context, &[]).await?;
            passkeys::set_up(target, context, name == "required-passkey").await?;
        }
        "fresh-patient" => {
            let scopes = "openid profile offline_access user/ValueSet.rs patient/*.cud";
            fresh_user(environment, context, &["--fhir-user", "Patient/pat-01", "--allowed-scopes", scopes])
                .await?;
        }
        "member-of-groups" => {
            fresh_user(environment, context, &["--claim", "groups=nurse", "--claim", "groups=ward-3"])
                .await?;
        }
        "fresh-clinician" => {
            let scopes = "openid profile offline_access user/*.cruds";
            fresh_user(
                environment,
                context,
                &["--fhir-user", "Practitioner/prac-1", "--allowed-scopes", scopes],
            )
            .await?;
        }
        "grace-token" => {
            let code = code(environment, &context.vars, "retrying", false).await?;
            context.set_tokens(&applications::redeem(target, "retrying", &code).await?);
        }
        "keyed-assertions" => {
            context.vars.set("keyed", environment.local()?.key_hosts.assertions(target)?);
        }
        "basic-client" => {
            context.vars.set("basic_client", basic_client(environment, "system/*.rs", &[]).await?)
        }
        "client-of-a-group" => {
            let group = member(&context.vars, "groups.0")?.to_owned();
            context
                .vars
                .set("basic_client", basic_client(environment, "system/*.rs", &["--group", &group]).await?);
        }
        "writing-client-of-a-group" => {
            let group = member(&context.vars, "groups.0")?.to_owned();
            let client = basic_client(environment, "system/*.cruds", &["--group", &group]).await?;
            context.vars.set("basic_client", client);
        }
        "admin-token" => {
            let token =
                shared.admin.get_or_try_init(|| created_client_token(environment, "trefoil/admin")).await?;
            context.vars.set("admin_token", token.as_str());
        }
        "administrator-token" => administrator(environment, context).await?,
        "would-be-administrator" => {
            let mut cookies = first_session(environment).await?;
            let more = [("scope", "openid trefoil/admin")];
            let person = person(&context.vars, "user")?;
            environment.local()?;
            context.set_code(
                applications::code(target, &mut cookies, &person, "declared.admin", true, &more).await?,
            );
        }
        "declared-codes" => declared_codes(environment, context).await?,
        "own-user" => {
            own_user(environment, context).await?;
        }
        "turned-keys" => turned_keys(environment, context).await?,
        "releases" => {
            let loaded = shared.releases.get_or_try_init(|| releases(environment)).await?.clone();
            context.vars = loaded.1.vars();
            context.own = Some(loaded);
        }
        "branded-pages" => {
            let server = shared.branded_pages.get_or_try_init(|| branded_pages(environment)).await?.clone();
            context.vars = server.1.vars();
            context.own = Some(server);
        }
        "guide-3" => {
            let config = "[bulk]\nguide = \"3.0.0\"\nnested_groups = true\nfile_size = 8192\n";
            let server = shared.guide_3.get_or_try_init(|| configured(environment, config)).await?.clone();
            ask_of(server, context).await?;
        }
        "signed-addresses" => {
            let config = "[bulk]\nsigned_url_s = 300\n";
            let server =
                shared.signed_addresses.get_or_try_init(|| configured(environment, config)).await?.clone();
            ask_of(server, context).await?;
        }
        "assertions" => context.vars.set("assertion", applications::assertions(target)?),
        "system-token" => context.vars.set("system_token", system_token(environment).await?),
        "writing-client" => {
            context.vars.set("basic_client", basic_client(environment, "system/*.cruds", &[]).await?);
        }
        "writing-token" => {
            let token = shared
                .writing
                .get_or_try_init(|| created_client_token(environment, "system/*.cruds"))
                .await?;
            context.vars.set("writing_token", token.as_str());
        }
        "narrow-token" => {
            context.vars.set("narrow_token", backend_token(target, 0, Some("system/Patient.rs")).await?);
        }
        "export" | "fresh-export" => {
            let export = match name {
                "export" => shared.export.get_or_try_init(|| export(environment)).await?.clone(),
                _ => export(environment).await?,
            };
            context.vars.set("bulk", export);
            context.vars.set("system_token", system_token(environment).await?);
        }
        "failed-export" => failed_export(environment, context).await?,
        "expired-export" => minute_old_export(environment, context, "[bulk]\nretention_s = 60\n").await?,
        "expired-addresses" => minute_old_export(environment, context, "[bulk]\nsigned_url_s = 60\n").await?,
        "disabled-user" => removed_user(environment, context, "disable").await?,
        "deleted-user" => removed_user(environment, context, "delete").await?,
        // Codes are valid for 300 s and tokens for 3600 s. The case has 30 s to use them.
        "aged-code" => aged(environment, context, 270).await?,
        "aged-session" => aged(environment, context, 60).await?,
        "expired-code" => aged(environment, context, 301).await?,
        "lasting-token" => aged(environment, context, 3570).await?,
        "expired-token" => aged(environment, context, 3601).await?,
        "device-code" => device_code(&environment.target, context).await?,
        "expired-device-code" => aged(environment, context, 601).await?,
        _ => return Err(SetupError::Failed("no code is implemented for this precondition".to_owned())),
    }
    Ok(())
}

fn demo_data(target: &TestTarget) -> Result<(), SetupError> {
    if has_demo_project(target) {
        return Ok(());
    }
    Err(SetupError::Lacking("uses the demo project of Trefoil, which the target does not have".to_owned()))
}
