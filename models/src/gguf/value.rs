//! Values of the metadata.

use super::cursor::{Cursor, Fault};
use std::fmt;
use std::ops::Range;

/// The type of a value as the file numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    fn of(number: u32) -> Option<Self> {
        use Kind::{Array, Bool, F32, F64, I8, I16, I32, I64, String, U8, U16, U32, U64};
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].get(number as usize).copied()
    }

    /// Bytes of an element; of a string, those of its length.
    fn bytes(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::String | Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::Array => 12,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 | Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {
                "whole numbers"
            }
            Kind::F32 | Kind::F64 => "floating-point numbers",
            Kind::Bool => "booleans",
            Kind::String => "strings",
            Kind::Array => "arrays",
        }
    }

    pub(super) fn read(cursor: &mut Cursor) -> Result<Self, Fault> {
        let at = cursor.offset();
        let number = cursor.u32("the type of a value")?;
        Self::of(number).ok_or_else(|| Fault::new(at, format!("there is no value type {number}")))
    }
}

/// A value, without the width that the file stores it in.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i128),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(String),
    /// Several values of one type.
    Array(Array),
}

impl Value {
    pub(super) fn read(cursor: &mut Cursor) -> Result<Self, Fault> {
        match Kind::read(cursor)? {
            Kind::String => Ok(Value::String(cursor.string("a string")?.to_owned())),
            Kind::Array => Array::read(cursor).map(Value::Array),
            kind => Self::scalar(kind, cursor),
        }
    }

    fn scalar(kind: Kind, cursor: &mut Cursor) -> Result<Self, Fault> {
        let at = cursor.offset();
        let bytes = cursor.take(kind.bytes() as u64, "a value")?;
        match decode(kind, bytes) {
            Value::Integer(value) if kind == Kind::Bool => match value {
                0 | 1 => Ok(Value::Bool(value == 1)),
                _ => Err(Fault::new(at, format!("a boolean is {value}, expected 0 or 1"))),
            },
            value => Ok(value),
        }
    }

    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Bool(value) => value.to_string(),
            Value::String(value) if value.len() <= 64 => format!("{value:?}"),
            Value::String(value) => format!("a string of {} bytes", value.len()),
            Value::Array(array) => format!("an array of {} {}", array.len, array.kind.name()),
        }
    }
}

/// A scalar from its bytes; a boolean as a whole number.
fn decode(kind: Kind, bytes: &[u8]) -> Value {
    fn of<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("as many bytes as the type has")
    }
    match kind {
        Kind::U8 | Kind::Bool => Value::Integer(i128::from(bytes[0])),
        Kind::I8 => Value::Integer(i128::from(i8::from_le_bytes(of(bytes)))),
        Kind::U16 => Value::Integer(i128::from(u16::from_le_bytes(of(bytes)))),
        Kind::I16 => Value::Integer(i128::from(i16::from_le_bytes(of(bytes)))),
        Kind::U32 => Value::Integer(i128::from(u32::from_le_bytes(of(bytes)))),
        Kind::I32 => Value::Integer(i128::from(i32::from_le_bytes(of(bytes)))),
        Kind::U64 => Value::Integer(i128::from(u64::from_le_bytes(of(bytes)))),
        Kind::I64 => Value::Integer(i128::from(i64::from_le_bytes(of(bytes)))),
        Kind::F32 => Value::Float(f64::from(f32::from_le_bytes(of(bytes)))),
        Kind::F64 => Value::Float(f64::from_le_bytes(of(bytes))),
        Kind::String | Kind::Array => unreachable!("read by the caller"),
    }
}

/// Several values of one type, left in the file: a vocabulary has hundreds of thousands.
#[derive(Clone, PartialEq)]
pub struct Array {
    kind: Kind,
    len: usize,
    range: Range<usize>,
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at bytes {:?}", self.len, self.kind.name(), self.range)
    }
}

impl Array {
    fn read(cursor: &mut Cursor) -> Result<Self, Fault> {
        let at = cursor.offset();
        let kind = Kind::read(cursor)?;
        if kind == Kind::Array {
            return Err(Fault::new(at, "an array of arrays is not supported".to_owned()));
        }
        let count = cursor.count("elements in an array", kind.bytes())?;
        let first = cursor.offset();
        if kind == Kind::String {
            for _ in 0..count {
                cursor.string("a string of an array")?;
            }
        } else {
            cursor.take((count * kind.bytes()) as u64, "the elements of an array")?;
        }
        Ok(Array { kind, len: count, range: first..cursor.offset() })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The strings, if it is strings that `file` holds there.
    pub(super) fn strings<'a>(&self, file: &'a [u8]) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
        // An empty array has strings whatever its type says.
        let len = if self.kind == Kind::String { Some(self.len) } else { (self.len == 0).then_some(0) }?;
        let mut cursor = Cursor::new(file, self.range.start);
        Some((0..len).map(move |_| cursor.string("a string of an array").expect("read once already")))
    }

    /// The numbers, if it is numbers that `file` holds there.
    pub(super) fn numbers<'a>(&self, file: &'a [u8]) -> Option<impl Iterator<Item = f64> + use<'a>> {
        let kind = self.kind;
        let bytes = &file[self.range.clone()];
        if matches!(kind, Kind::String | Kind::Bool) {
            return None;
        }
        Some(bytes.chunks_exact(kind.bytes()).map(move |bytes| match decode(kind, bytes) {
            Value::Integer(value) => value as f64,
            Value::Float(value) => value,
            _ => unreachable!("a number"),
        }))
    }
}
