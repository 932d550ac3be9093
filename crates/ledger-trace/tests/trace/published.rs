//! The published schema: the file is what the types say, and answers are what the file says.

use ledger_trace::{Answer, Limits, Query, schema, trace};
use serde_json::Value;

use crate::fake::Fake;
use crate::tell::documented;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/trace.schema.json");

/// `UPDATE_SCHEMA=1 cargo test -p ledger-trace` writes the file anew.
#[test]
fn the_file_is_what_the_types_say() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(FILE).unwrap(), text);
}

#[test]
fn answers_are_what_the_file_says() {
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap();
    let fake = Fake::new(0, documented().records());
    let ask = |query: Query, limits| trace(&fake, &query, limits).unwrap();
    let cut = Limits {
        frames_max: 3,
        ..Limits::default()
    };
    let answers: [Answer; 5] = [
        fake.ask("act_01"),
        Fake::new(0, documented().records())
            .skeleton()
            .ask("evt_93"),
        fake.ask("nothing"),
        ask(Query::pasted("acme ses_5 con_builds"), Limits::default()),
        ask(Query::value("act_01"), cut),
    ];
    for answer in answers {
        let json: Value = serde_json::from_str(&answer.to_json()).unwrap();
        if let Err(what) = check(&schema, &schema, &json) {
            panic!("{what}");
        }
        // Whoever reads it has the same answer, and shows it the same way.
        let read: Answer = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read, answer);
        assert_eq!(read.to_json(), answer.to_json());
        // The checker sees what is wrong.
        let mut wrong = json.clone();
        wrong["version"] = "one".into();
        assert!(check(&schema, &schema, &wrong).is_err());
        let mut wrong = json;
        wrong.as_object_mut().unwrap().remove("range");
        assert!(check(&schema, &schema, &wrong).is_err());
    }
}

/// The keywords that this schema uses; another one fails.
fn check(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(rules) = schema.as_object() else {
        return Ok(());
    };
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" | "format" | "default" => true,
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                check(root, &root["$defs"][name], value)?;
                true
            }
            "type" => match rule {
                Value::Array(types) => types.iter().any(|t| is_of(t.as_str().unwrap(), value)),
                one => is_of(one.as_str().unwrap(), value),
            },
            "const" => rule == value,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
            "required" => rule
                .as_array()
                .unwrap()
                .iter()
                .all(|name| value.get(name.as_str().unwrap()).is_some()),
            "properties" => {
                for (name, of) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(root, of, member).map_err(|e| format!("{name}: {e}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                for member in value.as_object().unwrap().values() {
                    check(root, rule, member)?;
                }
                true
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check(root, rule, item)?;
                }
                true
            }
            "anyOf" | "oneOf" => rule
                .as_array()
                .unwrap()
                .iter()
                .any(|of| check(root, of, value).is_ok()),
            other => panic!("the checker does not know {other}"),
        };
        if !holds {
            return Err(format!("{keyword} {rule} does not hold for {value}"));
        }
    }
    Ok(())
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    }
}
