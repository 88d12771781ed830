//! Parses fields, lists and messages of protobuf text format. Faults have the place that `google.protobuf.text_format` reports: the
//! unexpected token, or the last token read if a field cannot be set.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _, Value};

use super::recovery::Recovery;
use super::tokens::{ParseError, Parsed, TokenStream};
use super::values;

/// Parses a whole text as one message of this type. On error returns the first fault, and those behind it that certainly do not follow from
/// an earlier one.
pub(super) fn parse(text: &str, descriptor: MessageDescriptor) -> Result<DynamicMessage, Vec<ParseError>> {
    let mut tokens = TokenStream::new(text);
    let mut message = DynamicMessage::new(descriptor.clone());
    let mut recovery = Recovery::default();
    recovery.enter(descriptor);
    while !tokens.current.is_end() {
        if let Err(last) = field(&mut tokens, &mut message, &mut recovery) {
            recovery.faults.push(last);
            break;
        }
    }
    if recovery.faults.is_empty() { Ok(message) } else { Err(recovery.faults) }
}

/// Parses one field with its value or values.
fn field(tokens: &mut TokenStream<'_>, message: &mut DynamicMessage, recovery: &mut Recovery) -> Parsed<()> {
    let descriptor = message.descriptor();
    let of = name_of(&descriptor);
    if tokens.accept("[") {
        return extension(tokens, &of);
    }
    if !tokens.current.text.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
        return Err(tokens.current.unexpected("a field name"));
    }
    let name = tokens.take();
    let Some(field) = descriptor.get_field_by_name(name.text) else {
        let error = name.error(format!("field '{}' not found for message '{of}'", name.text));
        return recovery.behind_field(name.text, error, tokens);
    };
    if let Some(oneof) = field.containing_oneof()
        && let Some(other) = oneof.fields().find(|other| *other != field && message.has_field(other))
    {
        let (field, other) = (field.name(), other.name());
        return Err(name.error(format!("'{field}' and '{other}' exclude each other: remove one of them")));
    }
    if matches!(field.kind(), Kind::Message(_)) {
        tokens.accept(":");
    } else {
        tokens.expect(":", "':'")?;
    }
    if (field.is_list() || field.is_map()) && tokens.accept("[") {
        list(tokens, message, &field, recovery)?;
    } else {
        value(tokens, message, &field, recovery)?;
    }
    if !tokens.accept(",") {
        tokens.accept(";");
    }
    Ok(())
}

/// Refuses the name of an extension: no message of a configuration has extensions.
fn extension(tokens: &mut TokenStream<'_>, of: &str) -> Parsed<()> {
    loop {
        if !tokens.current.text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Err(tokens.current.unexpected("an identifier"));
        }
        tokens.take();
        if !tokens.accept(".") {
            return Err(tokens.previous.error(format!("message '{of}' has no extensions")));
        }
    }
}

/// Parses the values of a list, up to its bracket.
fn list(
    tokens: &mut TokenStream<'_>,
    message: &mut DynamicMessage,
    field: &FieldDescriptor,
    recovery: &mut Recovery,
) -> Parsed<()> {
    if tokens.accept("]") {
        return Ok(());
    }
    loop {
        value(tokens, message, field, recovery)?;
        if tokens.accept("]") {
            return Ok(());
        }
        tokens.expect(",", "',' or ']'")?;
    }
}

/// Parses one value of the field and sets or adds it.
fn value(
    tokens: &mut TokenStream<'_>,
    message: &mut DynamicMessage,
    field: &FieldDescriptor,
    recovery: &mut Recovery,
) -> Parsed<()> {
    let is_single = !field.is_list() && !field.is_map();
    let read = match field.kind() {
        Kind::Message(of) => {
            let close = open(tokens)?;
            if is_single && message.has_field(field) {
                return Err(twice(tokens, field));
            }
            Value::Message(fields(tokens, of, close, recovery)?)
        }
        kind => {
            let begin = *tokens;
            let value = match values::parse(tokens, &kind) {
                Ok(value) => value,
                Err(error) => {
                    *tokens = begin;
                    return recovery.behind_value(error, tokens);
                }
            };
            if is_single && is_set(message, field) {
                return Err(twice(tokens, field));
            }
            value
        }
    };
    store(message, field, read);
    Ok(())
}

/// Takes the opening mark of a message and returns the closing one.
fn open(tokens: &mut TokenStream<'_>) -> Parsed<&'static str> {
    if tokens.accept("<") {
        return Ok(">");
    }
    tokens.expect("{", "'{' or '<'")?;
    Ok("}")
}

/// Parses the fields of an open message, including its closing mark.
fn fields(
    tokens: &mut TokenStream<'_>,
    of: MessageDescriptor,
    close: &str,
    recovery: &mut Recovery,
) -> Parsed<DynamicMessage> {
    let mut message = DynamicMessage::new(of.clone());
    recovery.enter(of);
    while !tokens.accept(close) {
        if tokens.current.is_end() {
            let what = format!("expected '{close}' or a field name, but reached end of input");
            return Err(tokens.previous.error(what));
        }
        field(tokens, &mut message, recovery)?;
    }
    recovery.leave();
    Ok(message)
}

fn twice(tokens: &TokenStream<'_>, field: &FieldDescriptor) -> ParseError {
    tokens.previous.error(format!("'{}' is already set", field.name()))
}

/// Whether the field has a value already. A field without presence counts as set if it differs from the default, or is -0.0.
fn is_set(message: &DynamicMessage, field: &FieldDescriptor) -> bool {
    let negative = |value: &Value| match value {
        Value::F32(value) => value.is_sign_negative(),
        Value::F64(value) => value.is_sign_negative(),
        _ => false,
    };
    message.has_field(field) || negative(&message.get_field(field))
}

/// Sets the field, or adds to its list or map. Of two map entries with the same key, the later one counts.
fn store(message: &mut DynamicMessage, field: &FieldDescriptor, value: Value) {
    let place = message.get_field_mut(field);
    match (place, value) {
        (Value::List(values), value) => values.push(value),
        (Value::Map(entries), Value::Message(entry)) => {
            let part = |number| entry.get_field_by_number(number).map(std::borrow::Cow::into_owned);
            if let (Some(Some(key)), Some(value)) = (part(1).map(Value::into_map_key), part(2)) {
                entries.insert(key, value);
            }
        }
        (place, value) => *place = value,
    }
}

/// A message's name within the package.
fn name_of(descriptor: &MessageDescriptor) -> String {
    descriptor.full_name().trim_start_matches("inference.").to_owned()
}
