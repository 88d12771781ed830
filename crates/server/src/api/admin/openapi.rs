//! Describes operations as an OpenAPI document. The operations themselves are in `routes`.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::{Map, Value, json};

use super::Admin;

/// The JSON schemas of the bodies, by name.
const SCHEMAS: &str = include_str!("schemas.json");

#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    fn filter(self) -> MethodFilter {
        match self {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Put => MethodFilter::PUT,
            Verb::Delete => MethodFilter::DELETE,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Put => "put",
            Verb::Delete => "delete",
        }
    }
}

/// A body of a request or of its answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum BodySchema {
    None,
    Bytes,
    Html,
    /// JSON of the schema with this name.
    Json(&'static str),
    /// A JSON array of this schema.
    List(&'static str),
}

impl BodySchema {
    fn content(self) -> Option<Value> {
        let named = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        Some(match self {
            BodySchema::None => return None,
            BodySchema::Bytes => json!({ "application/octet-stream": {} }),
            BodySchema::Html => json!({ "text/html": {} }),
            BodySchema::Json(name) => json!({ "application/json": { "schema": named(name) } }),
            BodySchema::List(name) => {
                json!({ "application/json": { "schema": { "type": "array", "items": named(name) } } })
            }
        })
    }
}

/// One path with one method: its description and its handler.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) path: &'static str,
    verb: Verb,
    /// The name of the call in generated clients.
    id: &'static str,
    summary: &'static str,
    query: Vec<Value>,
    takes: BodySchema,
    answers: BodySchema,
    code: u16,
    pub(super) handler: MethodRouter<Admin>,
}

impl Operation {
    /// An operation without a request body, whose answer is an empty JSON object.
    pub(super) fn new<H, T>(
        verb: Verb,
        path: &'static str,
        (id, summary): (&'static str, &'static str),
        handler: H,
    ) -> Operation
    where
        H: Handler<T, Admin>,
        T: 'static,
    {
        let handler = on(verb.filter(), handler);
        let (takes, answers) = (BodySchema::None, BodySchema::Json("Done"));
        Operation { path, verb, id, summary, query: Vec::new(), takes, answers, code: 200, handler }
    }

    /// Adds a query parameter with its JSON schema.
    pub(super) fn query(mut self, name: &str, schema: &Value, description: &str) -> Operation {
        self.query.push(json!({ "name": name, "in": "query", "description": description, "schema": schema }));
        self
    }

    pub(super) fn takes(self, takes: BodySchema) -> Operation {
        Operation { takes, ..self }
    }

    pub(super) fn answers(self, answers: BodySchema) -> Operation {
        Operation { answers, ..self }
    }

    pub(super) fn code(self, code: u16) -> Operation {
        Operation { code, ..self }
    }

    fn described(&self) -> Value {
        let placeholders = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = placeholders
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
        let parameters: Vec<Value> = in_path.chain(self.query.iter().cloned()).collect();
        let mut answer = json!({ "description": self.summary });
        insert(&mut answer, "content", self.answers.content());
        let refusal = json!({ "$ref": "#/components/responses/Refusal" });
        let mut described = json!({
            "operationId": self.id,
            "summary": self.summary,
            "responses": { self.code.to_string(): answer, "default": refusal },
        });
        insert(&mut described, "parameters", (!parameters.is_empty()).then_some(Value::Array(parameters)));
        insert(&mut described, "requestBody", self.takes.content().map(|content| json!({ "content": content })));
        described
    }
}

/// Sets a key if it has a value.
fn insert(object: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
        object.insert(key.to_owned(), value);
    }
}

/// The OpenAPI document of these operations.
pub(super) fn document(operations: &[Operation]) -> Value {
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        insert(path, operation.verb.name(), Some(operation.described()));
    }
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sequor admin API",
            "description": "The operators' listener. See docs/reference/admin.md.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "security": [{}, { "bearer": [] }, { "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": { "Refusal": {
                "description": "The request is refused",
                "headers": {
                    "sequor-reason": { "schema": { "type": "string" } },
                    "sequor-help": { "schema": { "type": "string" } },
                },
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Refusal" } } },
            } },
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "sequor-key" },
            },
        },
    })
}
