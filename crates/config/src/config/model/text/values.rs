//! Parses numbers, enum names and strings of protobuf text format.

use std::iter::Peekable;
use std::str::Chars;

use prost_reflect::{EnumDescriptor, Kind, Value};

use super::tokens::{Parsed, TextToken, TokenStream};

/// Parses one value of a kind other than a message.
pub(super) fn parse(tokens: &mut TokenStream<'_>, kind: &Kind) -> Parsed<Value> {
    match kind {
        Kind::Float => float(tokens).map(|value| Value::F32(value as f32)),
        Kind::Double => float(tokens).map(Value::F64),
        Kind::Bool => bool(tokens).map(Value::Bool),
        Kind::String => string(tokens).map(Value::String),
        Kind::Bytes => bytes(tokens).map(|(value, _)| Value::Bytes(value.into())),
        Kind::Enum(of) => named(tokens, of).map(Value::EnumNumber),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => integer(tokens, "a signed 32-bit integer").map(Value::I32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => integer(tokens, "a signed 64-bit integer").map(Value::I64),
        Kind::Uint32 | Kind::Fixed32 => integer(tokens, "an unsigned 32-bit integer").map(Value::U32),
        Kind::Uint64 | Kind::Fixed64 => integer(tokens, "an unsigned 64-bit integer").map(Value::U64),
        Kind::Message(_) => Err(tokens.current.unexpected("a value")),
    }
}

/// The bounds of an integer type.
trait Whole: TryFrom<i128> {
    const LEAST: i128;
    const MOST: i128;
}

macro_rules! whole {
    ($($of:ty),*) => { $(impl Whole for $of {
        const LEAST: i128 = <$of>::MIN as i128;
        const MOST: i128 = <$of>::MAX as i128;
    })* };
}

whole!(i32, i64, u32, u64);

/// Takes a minus sign that is separate from its number, like the C++ parser.
fn sign(tokens: &mut TokenStream<'_>) -> bool {
    tokens.accept("-")
}

fn integer<T: Whole>(tokens: &mut TokenStream<'_>, expected: &str) -> Parsed<T> {
    let first = tokens.current;
    let apart = sign(tokens);
    let Some(digits) = Digits::parse(tokens.current.text).filter(|digits| !(apart && digits.is_negative)) else {
        return Err(first.unexpected("an integer"));
    };
    let number = digits.number().map(|number| if apart { -number } else { number });
    let Some(number) = number.and_then(|number| T::try_from(number).ok()) else {
        let (given, least, most) = (tokens.current.text, T::LEAST, T::MOST);
        return Err(first.error(format!(
            "expected value to be {expected}, but the value {given} is out of range: the value must be between {least} and \
             {most} inclusive"
        )));
    };
    tokens.take();
    Ok(number)
}

/// An integer as it is written.
struct Digits<'a> {
    is_negative: bool,
    radix: u32,
    digits: &'a str,
}

impl<'a> Digits<'a> {
    fn parse(text: &'a str) -> Option<Digits<'a>> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let (radix, digits) = match (hexadecimal, text.strip_prefix('0')) {
            (Some(digits), _) => (16, digits),
            (None, Some(digits)) if !digits.is_empty() => (8, digits),
            _ => (10, text),
        };
        let sound = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        sound.then_some(Digits { is_negative, radix, digits })
    }

    /// The number; `None` if it exceeds every type.
    fn number(&self) -> Option<i128> {
        let number = i128::from_str_radix(self.digits, self.radix).ok()?;
        Some(if self.is_negative { -number } else { number })
    }
}

fn float(tokens: &mut TokenStream<'_>) -> Parsed<f64> {
    let first = tokens.current;
    let apart = sign(tokens);
    let text = tokens.current.text;
    let (is_negative, size) = text.strip_prefix('-').map_or((apart, text), |rest| (true, rest));
    let number = magnitude(size).filter(|_| !apart || text == size);
    let number = number.ok_or_else(|| first.unexpected("a number"))?;
    tokens.take();
    Ok(if is_negative { -number } else { number })
}

/// A number without its sign. Rejects digits behind a leading zero: they would be octal, which a floating-point number cannot be.
fn magnitude(text: &str) -> Option<f64> {
    let plain = text.strip_suffix(['f', 'F']).unwrap_or(text);
    let is = |text: &str, name: &str| text.eq_ignore_ascii_case(name);
    if [text, plain].iter().any(|text| is(text, "inf") || is(text, "infinity")) {
        return Some(f64::INFINITY);
    }
    if is(text, "nan") || is(plain, "nan") {
        return Some(f64::NAN);
    }
    let octal = plain.strip_prefix('0').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let decimal = plain.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let begins = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if octal || !decimal || !begins { None } else { plain.parse().ok() }
}

fn bool(tokens: &mut TokenStream<'_>) -> Parsed<bool> {
    let value = match tokens.current.text {
        "true" | "True" | "t" | "1" => true,
        "false" | "False" | "f" | "0" => false,
        _ => return Err(tokens.current.unexpected("'true' or 'false'")),
    };
    tokens.take();
    Ok(value)
}

/// The number of an enum value, by name or number. Unknown numbers are kept; later checks may refuse them.
fn named(tokens: &mut TokenStream<'_>, of: &EnumDescriptor) -> Parsed<i32> {
    let token = tokens.current;
    if let Some(value) = of.get_value_by_name(token.text) {
        tokens.take();
        return Ok(value.number());
    }
    if token.text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        let enumeration = of.full_name().trim_start_matches("inference.");
        return Err(token.error(format!("value '{}' was not found for enum '{enumeration}'", token.text)));
    }
    if token.text == "-" || Digits::parse(token.text).is_some() {
        return integer(tokens, "a signed 32-bit integer");
    }
    Err(token.unexpected("an enum value"))
}

fn string(tokens: &mut TokenStream<'_>) -> Parsed<String> {
    let (bytes, first) = bytes(tokens)?;
    // Protobuf's parser reports the place of the token behind the string, but the string's own place is more useful.
    String::from_utf8(bytes).map_err(|_| first.error("string is not valid utf-8"))
}

/// Parses adjacent strings as one; returns the token of the first.
fn bytes<'a>(tokens: &mut TokenStream<'a>) -> Parsed<(Vec<u8>, TextToken<'a>)> {
    let first = tokens.current;
    if !first.is_quoted() {
        return Err(first.unexpected("a string"));
    }
    let mut bytes = Vec::new();
    while tokens.current.is_quoted() {
        unquote(tokens.current, &mut bytes)?;
        tokens.take();
    }
    Ok((bytes, first))
}

/// Appends the contents of a quoted string.
fn unquote(token: TextToken<'_>, bytes: &mut Vec<u8>) -> Parsed<()> {
    let mut chars = token.text.chars().peekable();
    let quote = chars.next();
    while let Some(c) = chars.next() {
        if Some(c) == quote {
            return Ok(());
        }
        if c == '\\' {
            escape(&mut chars, bytes).ok_or_else(|| token.error("invalid string escape"))?;
        } else {
            push(c, bytes);
        }
    }
    Err(token.error("the string has no closing quote on its line"))
}

fn push(c: char, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Appends the byte or character of the escape behind a backslash.
fn escape(chars: &mut Peekable<Chars<'_>>, bytes: &mut Vec<u8>) -> Option<()> {
    let named = match chars.next()? {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        c @ ('?' | '\\' | '\'' | '"') => u8::try_from(c).ok()?,
        'x' | 'X' => u8::try_from(digits(chars, 16, 1, 2)?).ok()?,
        c @ '0'..='7' => {
            let first = c.to_digit(8)?;
            let mut value = first;
            for _ in 0..2 {
                let Some(next) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                value = value * 8 + next;
                chars.next();
            }
            u8::try_from(value).ok()?
        }
        'u' => return unicode(chars, 4, bytes),
        'U' => return unicode(chars, 8, bytes),
        _ => return None,
    };
    bytes.push(named);
    Some(())
}

fn unicode(chars: &mut Peekable<Chars<'_>>, count: u32, bytes: &mut Vec<u8>) -> Option<()> {
    push(char::from_u32(digits(chars, 16, count, count)?)?, bytes);
    Some(())
}

/// Parses between `least` and `most` digits.
fn digits(chars: &mut Peekable<Chars<'_>>, radix: u32, least: u32, most: u32) -> Option<u32> {
    let (mut value, mut count) = (0u32, 0);
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)).filter(|_| count < most) {
        value = value.checked_mul(radix)?.checked_add(digit)?;
        count += 1;
        chars.next();
    }
    (count >= least).then_some(value)
}
