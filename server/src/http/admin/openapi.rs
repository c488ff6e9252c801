//! GET {base}/admin/openapi.json: the requests to `/admin` and their answers in OpenAPI 3.1, from the
//! members of the commands.

use std::any::TypeId;

use clap::Arg;
use http::StatusCode;
use identity::model::members::{MemberRow, client_members, user_members};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::administration::all_commands::{COMMANDS, CommandRow, is_switch};
use crate::administration::command::{AdminMethod, AdminRoute, AnswerShape};
use crate::administration::member_flags::property;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Describes the requests.
pub async fn describe_requests(context: &RequestContext) -> Result<Response, Problem> {
    Ok(reply::json(StatusCode::OK, &description(&context.app.address.base_url)))
}

/// The description of a server with this base URL.
fn description(base_url: &str) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for row in COMMANDS {
        for route in row.doors.routes {
            let path = paths.entry(format!("/admin/{}", route.path)).or_insert_with(|| json!({}));
            let method = route.method.of_http().as_str().to_ascii_lowercase();
            path[method] = operation(row, route, &mut schemas);
        }
    }
    let mut definitions = schemas.take_definitions(true);
    definitions.insert(
        "Error".to_owned(),
        json!({
            "type": "object", "required": ["error"],
            "properties": { "error": { "type": "string" }, "error_description": { "type": "string" } },
        }),
    );
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Administration of Trefoil", "version": env!("CARGO_PKG_VERSION") },
        "servers": [{ "url": base_url }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": definitions,
        },
    })
}

fn operation(row: &CommandRow, route: &AdminRoute, schemas: &mut SchemaGenerator) -> Value {
    let command = row.command_line();
    let placeholders: Vec<&str> = route.path.split(['{', '}']).skip(1).step_by(2).collect();
    let is_first = row.doors.routes.first().is_some_and(|first| first.path == route.path);
    let parts = row.words().chain((!is_first).then(|| kind_of(route)));
    let mut parameters: Vec<Value> = placeholders
        .iter()
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let mut body = Map::new();
    let is_open = |argument: &&Arg| {
        let name = argument.get_id().as_str();
        let is_addressed = name == "user" || placeholders.contains(&name);
        // A request for one flag of a command has no others.
        !is_addressed && !argument.is_hide_set() && name != "unset" && (is_first || route.sets.is_none())
    };
    let reads = matches!(route.method, AdminMethod::Get | AdminMethod::Delete);
    let mut required = Vec::new();
    for argument in command.get_arguments().filter(is_open) {
        let name = argument.get_id().as_str();
        let is_required = argument.is_positional() && argument.is_required_set();
        required.extend(is_required.then_some(name));
        match reads {
            true if is_first => parameters.push(json!({
                "name": name, "in": "query", "required": is_required, "schema": schema(row, argument),
            })),
            true => {}
            false => drop(body.insert(name.to_owned(), schema(row, argument))),
        }
    }
    if row.reads_password {
        body.insert("password".to_owned(), json!({ "type": "string" }));
        // A new user may come from a provider.
        required.extend((row.name != "add").then_some("password"));
    }
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut operation = json!({
        "operationId": parts.collect::<Vec<_>>().join("_").replace('-', "_"),
        "tags": [row.group.unwrap_or("server")],
        "summary": about,
        "parameters": parameters,
        "responses": responses(row, schemas),
    });
    if !body.is_empty() {
        let schema = json!({ "type": "object", "properties": body, "required": required });
        operation["requestBody"] = json!({
            "required": !required.is_empty(), "content": { "application/json": { "schema": schema } },
        });
    }
    operation
}

/// The last word of a path that is no placeholder.
fn kind_of(route: &AdminRoute) -> &'static str {
    route.path.split('/').rfind(|part| !part.starts_with('{')).unwrap_or_default()
}

/// The row of a member of a user or a client.
fn member(row: &CommandRow, name: &str) -> Option<&'static MemberRow> {
    match row.group {
        Some("user") => user_members().find(|member| member.name == name),
        Some("client") => client_members().find(|member| member.name == name),
        _ => None,
    }
}

fn schema(row: &CommandRow, argument: &Arg) -> Value {
    if let Some(member) = member(row, argument.get_id().as_str()) {
        return property(member);
    }
    let type_id = argument.get_value_parser().type_id();
    let kind = match type_id {
        _ if is_switch(argument) => "boolean",
        _ if type_id == TypeId::of::<usize>() || type_id == TypeId::of::<u32>() => "integer",
        _ => "string",
    };
    json!({ "type": kind, "description": argument.get_help().map(ToString::to_string) })
}

fn responses(row: &CommandRow, schemas: &mut SchemaGenerator) -> Value {
    let content = |schema: Value| json!({ "application/json": { "schema": schema } });
    let error = json!({ "$ref": "#/components/schemas/Error" });
    let mut responses = json!({ "default": { "description": "Refused", "content": content(error) } });
    let (status, shown) = match row.answer {
        AnswerShape::Nothing => {
            responses["204"] = json!({ "description": "Done" });
            return responses;
        }
        AnswerShape::Record(write) if row.name == "add" => ("201", write(schemas).to_value()),
        AnswerShape::Record(write) => ("200", write(schemas).to_value()),
        AnswerShape::List(name, write) => {
            let mut properties = json!({ name: { "type": "array", "items": write(schemas) } });
            if super::members::has(row, "count") {
                properties["next"] = json!({ "type": ["string", "null"] });
            }
            ("200", json!({ "type": "object", "required": [name], "properties": properties }))
        }
    };
    responses[status] = json!({ "description": "Done", "content": content(shown) });
    responses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_described_once() {
        let described = description("https://id.example");
        let mut ids = Vec::new();
        for (path, methods) in described["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(!ids.contains(&id), "{method} {path}: {id} is taken");
                ids.push(id);
            }
        }
        assert_eq!(ids.len(), COMMANDS.iter().map(|row| row.doors.routes.len()).sum::<usize>());
        let user = &described["components"]["schemas"]["User"]["properties"];
        assert!(user["username"]["type"] == "string" && user["passkeys"].is_object(), "{user}");
    }
}
