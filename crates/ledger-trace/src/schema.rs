//! The JSON Schema of the answer. The published file is `trace.schema.json`; a test compares them.

use crate::model::Answer;

/// The schema of [`Answer::to_json`], draft 2020-12.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Answer).to_value()
}
