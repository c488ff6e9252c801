//! Updates of the screen of terminology operations.

use crate::model::answer::Answer;
use crate::model::{CodesScreen, Model, Operation};
use crate::msg::{Answered, CodeAnswer, CodeQuestion, RuntimeEffect};
use crate::other_server::OtherServer;

/// Sends the form of the visible operation.
pub(super) fn send(model: &mut Model) -> Vec<RuntimeEffect> {
    let (token, now) = (model.token_choice(), model.now);
    let bearer = token.bearer.clone();
    let other = model.codes.other_server.text().trim().to_owned();
    if model.codes.repeats(&token, &other) {
        model.notice = Some("The question was sent and waits for its answer; Esc cancels it.".to_owned());
        return Vec::new();
    }
    let CodesScreen { operation, validate, subsumes, lookup, expand, scroll, .. } = &mut model.codes;
    *scroll = 0;
    let (id, question) = match operation {
        Operation::ValidateCode => {
            let (id, question) = validate.send(token, &other, now);
            (id, CodeQuestion::ValidateCode(question))
        }
        Operation::Subsumes => {
            let (id, question) = subsumes.send(token, &other, now);
            (id, CodeQuestion::Subsumes(question))
        }
        Operation::Lookup => {
            let (id, question) = lookup.send(token, &other, now);
            (id, CodeQuestion::Lookup(question))
        }
        Operation::Expand => {
            let (id, question) = expand.send(token, &other, now);
            (id, CodeQuestion::Expand(question))
        }
    };
    model.typing = false;
    let mut effects = vec![RuntimeEffect::Code(id, question.clone(), bearer)];
    if !other.is_empty() {
        effects.push(RuntimeEffect::OtherCode(id, question, OtherServer::parse(&other)));
    }
    effects
}

pub(super) fn on_answer(model: &mut Model, id: u64, operation: Operation, result: Answered<CodeAnswer>) {
    let codes = &mut model.codes;
    match (operation, result) {
        (_, Ok(CodeAnswer::ValidateCode(answer))) => codes.validate.receive(id, Answer::Done(answer)),
        (_, Ok(CodeAnswer::Subsumes(answer))) => codes.subsumes.receive(id, Answer::Done(answer)),
        (_, Ok(CodeAnswer::Lookup(answer))) => codes.lookup.receive(id, Answer::Done(answer)),
        (_, Ok(CodeAnswer::Expand(answer))) => codes.expand.receive(id, Answer::Done(answer)),
        (Operation::ValidateCode, Err(reason)) => codes.validate.receive(id, Answer::Failed(reason)),
        (Operation::Subsumes, Err(reason)) => codes.subsumes.receive(id, Answer::Failed(reason)),
        (Operation::Lookup, Err(reason)) => codes.lookup.receive(id, Answer::Failed(reason)),
        (Operation::Expand, Err(reason)) => codes.expand.receive(id, Answer::Failed(reason)),
    }
}

/// Stores an answer of the other server.
pub(super) fn on_other_answer(
    model: &mut Model,
    id: u64,
    operation: Operation,
    result: Answered<CodeAnswer>,
) {
    let codes = &mut model.codes;
    match (operation, result) {
        (_, Ok(CodeAnswer::ValidateCode(answer))) => codes.validate.receive_other(id, Answer::Done(answer)),
        (_, Ok(CodeAnswer::Subsumes(answer))) => codes.subsumes.receive_other(id, Answer::Done(answer)),
        (_, Ok(CodeAnswer::Lookup(answer))) => codes.lookup.receive_other(id, Answer::Done(answer)),
        (_, Ok(CodeAnswer::Expand(answer))) => codes.expand.receive_other(id, Answer::Done(answer)),
        (Operation::ValidateCode, Err(reason)) => codes.validate.receive_other(id, Answer::Failed(reason)),
        (Operation::Subsumes, Err(reason)) => codes.subsumes.receive_other(id, Answer::Failed(reason)),
        (Operation::Lookup, Err(reason)) => codes.lookup.receive_other(id, Answer::Failed(reason)),
        (Operation::Expand, Err(reason)) => codes.expand.receive_other(id, Answer::Failed(reason)),
    }
}

pub(super) fn step_operation(model: &mut Model, by: usize) {
    let index = Operation::ALL.iter().position(|operation| *operation == model.codes.operation).unwrap_or(0);
    model.codes.operation = Operation::ALL[(index + by) % Operation::ALL.len()];
    model.codes.scroll = 0;
}

pub(super) fn copy_parameters(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(parameters) = model.sent_parameters() else { return Vec::new() };
    model.notice = Some("The Parameters resource was copied.".to_owned());
    vec![RuntimeEffect::Copy(format!("{parameters:#}"))]
}

pub(super) fn copy_command(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(command) = model.sent_command() else { return Vec::new() };
    model.notice = Some("The command was copied.".to_owned());
    vec![RuntimeEffect::Copy(command)]
}
