//! `GET /openapi.json`: the document, made from the handlers, with the records' own schema and the
//! table of problem codes.

use super::{OPERATIONS, append, read, trace};
use crate::problem::{TABLE, TYPE_PREFIX};
use axum::Json;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "ledger daemon",
        description = "Appends to and reads from one ledger, over unix sockets. Errors are RFC 9457 problems with stable codes.",
        license(name = "Apache-2.0 OR MIT")
    ),
    paths(
        append::append,
        read::record,
        trace::of_value,
        trace::of_text,
        read::checkpoint,
        read::cut_checkpoint,
        read::status,
        read::healthz,
        read::readyz,
        read::metrics,
        document,
    ),
    components(schemas(append::Acknowledgement, append::OneAnswer, append::BatchAnswer))
)]
struct Document;

/// The document.
#[must_use]
pub fn openapi() -> Value {
    // utoipa's types are plain data: there is nothing in them that does not serialize.
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    let schemas = &mut document["components"]["schemas"];
    schemas["Record"] = ledger_records::schema_all();
    schemas["Problem"] = problem_schema();
    let problem = json!({ "$ref": "#/components/schemas/Problem" });
    for (method, path, roles) in OPERATIONS {
        let operation = &mut document["paths"][path][method.to_ascii_lowercase()];
        let names: Vec<&str> = roles.iter().map(|r| r.name()).collect();
        operation["x-roles"] = json!(names);
        operation["responses"]["default"] = json!({
            "description": "Any other refusal",
            "content": { "application/problem+json": { "schema": problem } },
        });
    }
    document
}

fn problem_schema() -> Value {
    let names: Vec<&str> = TABLE.iter().map(|(name, ..)| *name).collect();
    let rows: Vec<String> = TABLE
        .iter()
        .map(|(name, status, title)| format!("`{name}` {status}: {title}"))
        .collect();
    json!({
        "type": "object",
        "description": format!("RFC 9457. {}", rows.join("; ")),
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": { "type": "string", "description": format!("{TYPE_PREFIX} and the code") },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "code": { "type": "string", "enum": names },
            "detail": { "type": "string" },
            "errors": {
                "type": "array",
                "description": "The faults of a record, each with its place",
                "items": {
                    "type": "object",
                    "required": ["pointer", "code", "expected", "found"],
                    "properties": {
                        "pointer": { "type": "string", "description": "RFC 6901" },
                        "code": { "type": "string" },
                        "expected": { "type": "string" },
                        "found": { "type": "string" },
                        "hint": { "type": "string" },
                    },
                },
            },
            "record_id": { "type": "string" },
            "first_seq": { "type": "integer" },
        },
    })
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "operation",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
pub(super) async fn document() -> Response {
    Json(openapi()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stands_in_the_document_and_no_other() {
        let document = openapi();
        let mut found = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                found += 1;
                let known = OPERATIONS
                    .iter()
                    .any(|(m, p, _)| m.eq_ignore_ascii_case(method) && p == path);
                assert!(known, "{method} {path}");
            }
        }
        assert_eq!(found, OPERATIONS.len());
        assert!(document["components"]["schemas"]["Record"].is_object());
    }

    #[test]
    fn references_lead_somewhere() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(map) => {
                    let local = map.get("$ref").and_then(Value::as_str);
                    if let Some(pointer) = local.and_then(|r| r.strip_prefix('#')) {
                        assert!(document.pointer(pointer).is_some(), "{pointer}");
                    }
                    map.values().for_each(|v| walk(v, document));
                }
                Value::Array(list) => list.iter().for_each(|v| walk(v, document)),
                _ => {}
            }
        }
        let document = openapi();
        walk(&document["paths"], &document);
    }
}
