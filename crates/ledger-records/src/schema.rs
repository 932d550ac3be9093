//! JSON Schema (draft 2020-12) of the record types, from the same field lists as the parser.
//! Not complete by itself: secrets, digests that must fit, and members needed together are the parser's.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::record::{Record, RecordType};
use crate::types;

/// The object that describes one struct, while it is built.
pub(crate) struct ObjectSchema {
    description: String,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl ObjectSchema {
    pub(crate) fn new(description: &str) -> Self {
        Self {
            description: description.trim().to_owned(),
            properties: Map::new(),
            required: Vec::new(),
        }
    }

    pub(crate) fn tag(&mut self, key: &str, value: &str) {
        self.properties
            .insert(key.to_owned(), json!({ "const": value }));
        self.required.push(json!(key));
    }

    pub(crate) fn member<T: JsonSchema>(
        &mut self,
        generator: &mut SchemaGenerator,
        name: &str,
        description: &str,
        required: bool,
    ) {
        let mut schema = generator.subschema_for::<T>();
        schema.insert("description".to_owned(), json!(description.trim()));
        self.properties.insert(name.to_owned(), schema.into());
        if required {
            self.required.push(json!(name));
        }
    }

    pub(crate) fn finish(self) -> Schema {
        schemars::json_schema!({
            "type": "object",
            "description": self.description,
            "properties": self.properties,
            "required": self.required,
            "additionalProperties": false,
        })
    }
}

pub(crate) fn one_of(description: &str, variants: Vec<Schema>) -> Schema {
    schemars::json_schema!({ "description": description.trim(), "oneOf": variants })
}

fn root<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// The JSON Schema of one record type.
#[must_use]
pub fn schema(record_type: RecordType) -> Value {
    match record_type {
        RecordType::Run => root::<types::Run>(),
        RecordType::Action => root::<types::Action>(),
        RecordType::Attempt => root::<types::Attempt>(),
        RecordType::RemoteRef => root::<types::RemoteRef>(),
        RecordType::Receipt => root::<types::Receipt>(),
        RecordType::Verification => root::<types::Verification>(),
        RecordType::Correlation => root::<types::Correlation>(),
        RecordType::StateTransition => root::<types::StateTransition>(),
        RecordType::StatusLookup => root::<types::StatusLookup>(),
        RecordType::Processing => root::<types::Processing>(),
        RecordType::Memory => root::<types::Memory>(),
        RecordType::Rules => root::<types::Rules>(),
        RecordType::Exception => root::<types::Exception>(),
    }
}

/// The JSON Schema of any record.
#[must_use]
pub fn schema_all() -> Value {
    root::<Record>()
}
