//! Names of variables and parameters: a name says what a thing is, not what happened to it.

use std::collections::BTreeMap;

use syn::Pat;
use syn::visit::{self, Visit};

/// Participles, and words of this project, that hide what a thing is.
const HIDING: [&str; 46] = [
    "shown", "named", "listed", "opened", "stored", "sent", "asked", "begun", "refused", "written", "known",
    "found", "done", "given", "made", "kept", "taken", "left", "lost", "held", "wanted", "said", "seen",
    "told", "chosen", "checked", "granted", "changed", "searched", "planned", "measured", "drawn", "built",
    "counted", "filled", "masked", "paired", "closed", "ended", "accepted", "rejected", "limited", "needed",
    "world", "scene", "why",
];

/// Checks the variables and parameters of all sources that are bound by themselves. Names within a pattern,
/// such as those of the fields of a variant, are not checked.
pub fn check(sources: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    for (file, text) in sources {
        let Ok(syntax) = syn::parse_file(text) else { continue };
        let mut bindings = HidingNames(Vec::new());
        bindings.visit_file(&syntax);
        faults.extend(bindings.0.iter().map(|name| {
            format!("{file}: the variable '{name}' says what happened to a thing; name what the thing is")
        }));
    }
}

/// The variables and parameters that have one of these names.
struct HidingNames(Vec<String>);

impl HidingNames {
    fn add(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Ident(pattern) if HIDING.iter().any(|name| pattern.ident == name) => {
                self.0.push(pattern.ident.to_string());
            }
            Pat::Type(pattern) => self.add(&pattern.pat),
            Pat::Reference(pattern) => self.add(&pattern.pat),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for HidingNames {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        self.add(&local.pat);
        visit::visit_local(self, local);
    }

    fn visit_expr_for_loop(&mut self, each: &'ast syn::ExprForLoop) {
        self.add(&each.pat);
        visit::visit_expr_for_loop(self, each);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let without_type = closure.inputs.iter().filter(|input| !matches!(input, Pat::Type(_)));
        without_type.for_each(|input| self.add(input));
        visit::visit_expr_closure(self, closure);
    }

    fn visit_pat_type(&mut self, parameter: &'ast syn::PatType) {
        self.add(&parameter.pat);
        visit::visit_pat_type(self, parameter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_parameters_are_checked() {
        let source = "fn f(sent: u8, (known, _): (u8, u8)) {
            let found = 1;
            for seen in 0..sent {}
            g(|&asked, b| asked + b);
            let S { stored, .. } = s;
        }";
        let mut faults = Vec::new();
        check(&BTreeMap::from([("a.rs".to_owned(), source.to_owned())]), &mut faults);
        let names: Vec<_> = faults.iter().map(|fault| fault.split('\'').nth(1).unwrap()).collect();
        assert_eq!(names, ["sent", "found", "seen", "asked"]);
    }
}
