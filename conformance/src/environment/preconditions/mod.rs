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
use accounts::{basic_client, fresh_user, own_user, removed_user};
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
pub async fn set_up(world: &TestEnvironment, name: &str, scene: &mut CaseContext) -> Result<(), SetupError> {
    let result = perform(world, name, scene).await;
    if let Some(own) = &scene.own {
        world.target.secrets.add_server(&own.1.secrets);
    }
    result?;
    let sets = preconditions::named(name).map(|row| &*row.sets).unwrap_or_default();
    match sets.iter().find(|variable| scene.vars.get(variable).is_none()) {
        Some(missing) => Err(SetupError::Failed(format!("the setup did not set ${missing}"))),
        None => Ok(()),
    }
}

async fn perform(world: &TestEnvironment, name: &str, scene: &mut CaseContext) -> Result<(), SetupError> {
    let (shared, target) = (&world.shared, &world.target);
    match name {
        "demo-data" => demo_data(target)?,
        "demo-terminology" => {
            if !has_demo_project(target) {
                shared.terminology.get_or_try_init(|| brought_terminology::bring(world)).await?;
            }
        }
        "providers" => scene.vars.set("providers", world.local()?.providers.vars()),
        "browser-at-sign-in" => at_sign_in(target, scene).await?,
        "signed-in" => scene.cookies = first_session(world).await?,
        "freshly-signed-in" => scene.cookies = session(target, "users.1").await?,
        "earlier-sign-in" => earlier_sign_in(world, scene).await?,
        "lone-user" => lone_user(world, scene).await?,
        "code" => scene.set_code(code(world, &scene.vars, "public", true).await?),
        "plain-code" => scene.set_code(code(world, &scene.vars, "public", false).await?),
        "confidential-code" => confidential_code(world, scene).await?,
        "token" => scene.set_tokens(shared.token.get_or_try_init(|| tokens(world, name)).await?),
        "openid-token" => scene.set_tokens(shared.openid.get_or_try_init(|| tokens(world, name)).await?),
        "notes-token" => scene.set_tokens(shared.notes.get_or_try_init(|| tokens(world, name)).await?),
        "implicit-token" => scene.set_tokens(shared.implicit.get_or_try_init(|| implicit(world)).await?),
        "fresh-token" => scene.set_tokens(&tokens(world, name).await?),
        "refresh-token" => {
            let code = refreshable_code(world, &scene.vars).await?;
            scene.set_tokens(&applications::redeem(target, "confidential", &code).await?);
        }
        "dpop-key" => dpop_key(scene)?,
        "dpop-token" => dpop_token(world, scene).await?,
        "fresh-user" => fresh_user(world, scene, &[]).await?,
        "passkey" | "required-passkey" => {
            fresh_user(world, scene, &[]).await?;
            passkeys::set_up(target, scene, name == "required-passkey").await?;
        }
        "fresh-patient" => {
            let scopes = "openid profile offline_access user/ValueSet.rs patient/*.cud";
            fresh_user(world, scene, &["--fhir-user", "Patient/pat-01", "--allowed-scopes", scopes]).await?;
        }
        "fresh-clinician" => {
            let scopes = "openid profile offline_access user/*.cruds";
            fresh_user(world, scene, &["--fhir-user", "Practitioner/prac-1", "--allowed-scopes", scopes])
                .await?;
        }
        "grace-token" => {
            let code = code(world, &scene.vars, "retrying", false).await?;
            scene.set_tokens(&applications::redeem(target, "retrying", &code).await?);
        }
        "keyed-assertions" => {
            scene.vars.set("keyed", world.local()?.key_hosts.assertions(target)?);
        }
        "basic-client" => scene.vars.set("basic_client", basic_client(world, "system/*.rs", &[]).await?),
        "client-of-a-group" => {
            let group = member(&scene.vars, "groups.0")?.to_owned();
            scene.vars.set("basic_client", basic_client(world, "system/*.rs", &["--group", &group]).await?);
        }
        "writing-client-of-a-group" => {
            let group = member(&scene.vars, "groups.0")?.to_owned();
            let client = basic_client(world, "system/*.cruds", &["--group", &group]).await?;
            scene.vars.set("basic_client", client);
        }
        "admin-token" => {
            let token = shared.admin.get_or_try_init(|| created_client_token(world, "trefoil/admin")).await?;
            scene.vars.set("admin_token", token.as_str());
        }
        "administrator-token" => administrator(world, scene).await?,
        "would-be-administrator" => {
            let mut cookies = first_session(world).await?;
            let more = [("scope", "openid trefoil/admin")];
            let person = person(&scene.vars, "user")?;
            world.local()?;
            scene.set_code(
                applications::code(target, &mut cookies, &person, "declared.admin", true, &more).await?,
            );
        }
        "declared-codes" => declared_codes(world, scene).await?,
        "own-user" => {
            own_user(world, scene).await?;
        }
        "turned-keys" => turned_keys(world, scene).await?,
        "releases" => {
            let loaded = shared.releases.get_or_try_init(|| releases(world)).await?.clone();
            scene.vars = loaded.1.vars();
            scene.own = Some(loaded);
        }
        "branded-pages" => {
            let server = shared.branded_pages.get_or_try_init(|| branded_pages(world)).await?.clone();
            scene.vars = server.1.vars();
            scene.own = Some(server);
        }
        "guide-3" => {
            let config = "[bulk]\nguide = \"3.0.0\"\nnested_groups = true\nfile_size = 8192\n";
            let server = shared.guide_3.get_or_try_init(|| configured(world, config)).await?.clone();
            ask_of(server, scene).await?;
        }
        "signed-addresses" => {
            let config = "[bulk]\nsigned_url_s = 300\n";
            let server = shared.signed_addresses.get_or_try_init(|| configured(world, config)).await?.clone();
            ask_of(server, scene).await?;
        }
        "assertions" => scene.vars.set("assertion", applications::assertions(target)?),
        "system-token" => scene.vars.set("system_token", system_token(world).await?),
        "writing-client" => {
            scene.vars.set("basic_client", basic_client(world, "system/*.cruds", &[]).await?);
        }
        "writing-token" => {
            let token =
                shared.writing.get_or_try_init(|| created_client_token(world, "system/*.cruds")).await?;
            scene.vars.set("writing_token", token.as_str());
        }
        "narrow-token" => {
            scene.vars.set("narrow_token", backend_token(target, 0, Some("system/Patient.rs")).await?);
        }
        "export" | "fresh-export" => {
            let export = match name {
                "export" => shared.export.get_or_try_init(|| export(world)).await?.clone(),
                _ => export(world).await?,
            };
            scene.vars.set("bulk", export);
            scene.vars.set("system_token", system_token(world).await?);
        }
        "failed-export" => failed_export(world, scene).await?,
        "expired-export" => minute_old_export(world, scene, "[bulk]\nretention_s = 60\n").await?,
        "expired-addresses" => minute_old_export(world, scene, "[bulk]\nsigned_url_s = 60\n").await?,
        "disabled-user" => removed_user(world, scene, "disable").await?,
        "deleted-user" => removed_user(world, scene, "delete").await?,
        // Codes are valid for 300 s and tokens for 3600 s. The case has 30 s to use them.
        "aged-code" => aged(world, scene, 270).await?,
        "aged-session" => aged(world, scene, 60).await?,
        "expired-code" => aged(world, scene, 301).await?,
        "lasting-token" => aged(world, scene, 3570).await?,
        "expired-token" => aged(world, scene, 3601).await?,
        "device-code" => device_code(&world.target, scene).await?,
        "expired-device-code" => aged(world, scene, 601).await?,
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
