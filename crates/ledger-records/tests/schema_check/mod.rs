//! The part of JSON Schema that the record schemas use, checked by hand: enough to see that examples fit and faults do
//! not. Not a validator for other schemas: an unknown keyword is an error.

use serde_json::{Map, Value};

/// Says where `value` does not fit.
pub(crate) fn check(root: &Value, value: &Value) -> Result<(), String> {
    fits(root, root, value, "")
}

fn fits(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Some(schema) = schema.as_object() else {
        return Err(format!("{at}: no schema"));
    };
    let fail = |keyword: &str| Err(format!("{at}: {keyword}"));
    for (keyword, rule) in schema {
        let good = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "format" => true,
            "required" | "additionalProperties" => true,
            "minimum" => value
                .as_f64()
                .is_none_or(|n| n >= rule.as_f64().unwrap_or(f64::MAX)),
            "maximum" => value
                .as_f64()
                .is_none_or(|n| n <= rule.as_f64().unwrap_or(f64::MIN)),
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| has_type(value, name)),
                name => has_type(value, name),
            },
            "const" => value == rule,
            "enum" => rule.as_array().is_some_and(|list| list.contains(value)),
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap_or(0)),
            "maxLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 <= rule.as_u64().unwrap_or(0)),
            // The patterns are the parser's own forms; that they are anchored is all that is checked here.
            "pattern" => rule.as_str().is_some_and(|text| text.starts_with('^')),
            "$ref" => {
                let pointer = rule
                    .as_str()
                    .and_then(|text| text.strip_prefix('#'))
                    .ok_or("a foreign reference")?;
                let target = root
                    .pointer(pointer)
                    .ok_or_else(|| format!("{at}: {pointer} is missing"))?;
                fits(root, target, value, at)?;
                true
            }
            "anyOf" | "oneOf" => {
                let fitting = rule
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|one| fits(root, one, value, at).is_ok());
                let count = fitting.count();
                if keyword == "oneOf" {
                    count == 1
                } else {
                    count > 0
                }
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    fits(root, rule, item, &format!("{at}/{i}"))?;
                }
                true
            }
            "properties" => {
                if let (Some(rules), Some(members)) = (rule.as_object(), value.as_object()) {
                    members_fit(root, schema, rules, members, at)?;
                }
                true
            }
            other => return Err(format!("{at}: keyword {other} is not known here")),
        };
        if !good {
            return fail(keyword);
        }
    }
    Ok(())
}

fn members_fit(
    root: &Value,
    schema: &Map<String, Value>,
    rules: &Map<String, Value>,
    members: &Map<String, Value>,
    at: &str,
) -> Result<(), String> {
    for (name, member) in members {
        match rules.get(name) {
            Some(rule) => fits(root, rule, member, &format!("{at}/{name}"))?,
            None => return Err(format!("{at}/{name}: additionalProperties")),
        }
    }
    if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err(format!("{at}: open to other members"));
    }
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for name in required.filter_map(Value::as_str) {
        if !members.contains_key(name) {
            return Err(format!("{at}/{name}: required"));
        }
    }
    Ok(())
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}
