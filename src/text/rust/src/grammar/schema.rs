//! JSON schemas from outside: checked and bounded, then made ready for the grammar engine.
//!
//! What is enforced is said here, keyword by keyword, with the place of what is wrong. The engine
//! has checks of its own, without places and with few bounds. What a schema only notes (titles,
//! examples, unknown keywords and formats) stays unheeded, as the standard has it.

use serde_json::{json, Map, Value};

use crate::error::{Result, TextError};

/// Bytes of a schema.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;
/// Levels of nesting.
const DEPTH_MAX: usize = 64;
/// Of minItems, maxLength and the like: each may cost states and memory.
const COUNT_MAX: u64 = 20_000;
/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 4096;
/// Of the options of oneOf and the patterns of patternProperties, which are compared in pairs.
const PAIRED_MAX: usize = 128;
/// References that stand for one another before there is a schema.
const REFERENCE_CHAIN_MAX: usize = 32;
/// Schemas, with those that oneOf takes in from references.
const NODES_MAX: usize = 20_000;
/// JSON values that oneOf takes in from references.
const TAKEN_IN_MAX: usize = 100_000;
/// Up to here a double holds every integer.
const EXACT_INTEGER_MAX: u64 = 1 << 53;

const TYPES: &[&str] = &[
    "null", "boolean", "integer", "number", "string", "array", "object",
];
const FORMATS: &[&str] = &[
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];
const COUNTS: &[&str] = &[
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
];
const BOUNDS: &[&str] = &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/// Keywords that restrict values and that are not enforced: refused.
const NOT_ENFORCED: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "x-guidance",
];
/// What may stand beside a reference that is replaced: it restricts nothing.
const NOTES: &[&str] = &[
    "$comment",
    "$ref",
    "default",
    "deprecated",
    "description",
    "examples",
    "title",
];
/// Keywords that restrict nothing by themselves, which the engine refuses all the same.
const WITHOUT_EFFECT: &[&str] = &["$dynamicAnchor", "$recursiveAnchor"];

/// The schema as the engine takes it, with how its texts are written: as Python's json.dumps does.
pub fn prepare(text: &str) -> Result<Value> {
    if text.len() > SCHEMA_BYTES_MAX {
        return Err(TextError::input(format!(
            "the JSON schema has {} bytes: at most {SCHEMA_BYTES_MAX} are served",
            text.len()
        )));
    }
    let root: Value = serde_json::from_str(text)
        .map_err(|e| TextError::input(format!("the JSON schema is no JSON: {e}")))?;
    prepare_value(root)
}

pub fn prepare_value(root: Value) -> Result<Value> {
    let mut prepared = root.clone();
    let mut check = Check {
        root: &root,
        nodes: 0,
        taken_in: 0,
    };
    check.schema(&mut prepared, &Place::root())?;
    if prepared.is_boolean() {
        prepared = if prepared == Value::Bool(true) {
            Value::Object(Map::new())
        } else {
            return Err(TextError::input(
                "the JSON schema is false: no value fits it",
            ));
        };
    }
    prepared["x-guidance"] = json!({
        "item_separator": ", ",
        "key_separator": ": ",
        "whitespace_flexible": false,
    });
    Ok(prepared)
}

/// Where in the schema, as a JSON pointer.
#[derive(Clone)]
struct Place {
    pointer: String,
    depth: usize,
}

impl Place {
    fn root() -> Self {
        Place {
            pointer: "#".to_owned(),
            depth: 0,
        }
    }

    fn at(&self, key: &str) -> Self {
        // A key may be of any length; an error shows its beginning.
        let shown: String = key.chars().take(64).collect();
        Place {
            pointer: format!("{}/{shown}", self.pointer),
            depth: self.depth + 1,
        }
    }

    fn fail<T>(&self, message: impl AsRef<str>) -> Result<T> {
        Err(TextError::input(format!(
            "{}: {}",
            self.pointer,
            message.as_ref()
        )))
    }
}

struct Check<'a> {
    root: &'a Value,
    nodes: usize,
    taken_in: usize,
}

impl<'a> Check<'a> {
    fn schema(&mut self, schema: &mut Value, place: &Place) -> Result<()> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return place.fail(format!("more than {NODES_MAX} schemas are not served"));
        }
        if place.depth > DEPTH_MAX {
            return place.fail(format!(
                "more than {DEPTH_MAX} levels of nesting are not served"
            ));
        }
        if schema.is_boolean() {
            return Ok(());
        }
        let Some(object) = schema.as_object_mut() else {
            return place.fail("a schema must be an object, true or false");
        };
        object.retain(|key, value| !changes_nothing(key, value));
        let keys: Vec<String> = object.keys().cloned().collect();
        for key in keys {
            self.keyword(&key, &mut object[&key], &place.at(&key))?;
        }
        Ok(())
    }

    fn keyword(&mut self, key: &str, value: &mut Value, place: &Place) -> Result<()> {
        match key {
            _ if NOT_ENFORCED.contains(&key) => place.fail(format!(
                "\"{key}\" is not enforced here: leave it out, and check the answer for it"
            )),
            "type" => check_type(value, place),
            "enum" => check_enum(value, place),
            "const" => check_literal(value, place),
            "$ref" => self.reference(value, place),
            "pattern" => check_pattern(value.as_str(), place),
            "required" => check_required(value, place),
            "oneOf" => self.one_of(value, place),
            "anyOf" | "allOf" => self.list(value, place),
            "prefixItems" => self.list_or_none(value, place),
            "items" if value.is_array() => self.list_or_none(value, place),
            "items" | "additionalItems" | "additionalProperties" => self.schema(value, place),
            "properties" | "$defs" | "definitions" => self.map(value, place),
            "patternProperties" => self.pattern_properties(value, place),
            "multipleOf" if !value.as_f64().is_some_and(|number| number > 0.0) => {
                place.fail("must be a number above 0")
            }
            _ if COUNTS.contains(&key) => check_count(value, place),
            _ if BOUNDS.contains(&key) => check_bound(value, place),
            _ => Ok(()),
        }
    }

    fn list(&mut self, value: &mut Value, place: &Place) -> Result<()> {
        if value.as_array().is_some_and(Vec::is_empty) {
            return place.fail("must have at least one schema");
        }
        self.list_or_none(value, place)
    }

    fn list_or_none(&mut self, value: &mut Value, place: &Place) -> Result<()> {
        let Some(list) = value.as_array_mut() else {
            return place.fail("must be a list of schemas");
        };
        for (index, schema) in list.iter_mut().enumerate() {
            self.schema(schema, &place.at(&index.to_string()))?;
        }
        Ok(())
    }

    fn map(&mut self, value: &mut Value, place: &Place) -> Result<()> {
        let Some(map) = value.as_object_mut() else {
            return place.fail("must be an object of schemas");
        };
        for (name, schema) in map.iter_mut() {
            self.schema(schema, &place.at(name))?;
        }
        Ok(())
    }

    fn pattern_properties(&mut self, value: &mut Value, place: &Place) -> Result<()> {
        if let Some(map) = value.as_object() {
            check_paired(map.len(), "patterns", place)?;
            for pattern in map.keys() {
                check_pattern(Some(pattern), place)?;
            }
        }
        self.map(value, place)
    }

    /// The engine serves oneOf where it sees that no value fits two options, and looks into no
    /// references for that: options that are references are replaced by what they refer to.
    fn one_of(&mut self, value: &mut Value, place: &Place) -> Result<()> {
        if let Some(options) = value.as_array_mut() {
            check_paired(options.len(), "options", place)?;
            for (index, option) in options.iter_mut().enumerate() {
                let place = place.at(&index.to_string());
                for _ in 0..REFERENCE_CHAIN_MAX {
                    let Some(reference) = sole_reference(option) else {
                        break;
                    };
                    let target = self.target(reference, &place)?;
                    self.taken_in += values_in(target);
                    if self.taken_in > TAKEN_IN_MAX {
                        return place.fail("the references grow too large here: use anyOf");
                    }
                    *option = target.clone();
                }
            }
        }
        self.list(value, place)
    }

    /// There is something, and it is no reference to itself.
    fn reference(&mut self, value: &Value, place: &Place) -> Result<()> {
        let mut reference = value;
        for _ in 0..REFERENCE_CHAIN_MAX {
            match self.target(reference, place)?.get("$ref") {
                None => return Ok(()),
                Some(next) => reference = next,
            }
        }
        place.fail("leads to no schema, only to further references")
    }

    fn target(&self, reference: &Value, place: &Place) -> Result<&'a Value> {
        let Some(text) = reference.as_str() else {
            return place.fail("must be a string");
        };
        let pointer = match text {
            "#" | "#/" => "",
            _ => text.strip_prefix('#').unwrap_or("?"),
        };
        let is_pointer = pointer.is_empty() || pointer.starts_with('/');
        if !is_pointer || pointer.contains(['~', '%']) {
            return place.fail(format!(
                "\"{}\": only references into the schema itself, such as \"#/$defs/name\", \
                 are served",
                text.chars().take(64).collect::<String>()
            ));
        }
        match self.root.pointer(pointer) {
            Some(target) => Ok(target),
            None => place.fail(format!(
                "\"{}\" is not in the schema",
                text.chars().take(64).collect::<String>()
            )),
        }
    }
}

/// The reference of a schema that is nothing else.
fn sole_reference(schema: &Value) -> Option<&Value> {
    let object = schema.as_object()?;
    let is_sole = object.keys().all(|key| NOTES.contains(&key.as_str()));
    object.get("$ref").filter(|_| is_sole)
}

fn values_in(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(values_in).sum(),
        Value::Object(map) => map.values().map(values_in).sum(),
        _ => 0,
    }
}

fn changes_nothing(key: &str, value: &Value) -> bool {
    match key {
        "uniqueItems" => value == &Value::Bool(false),
        "unevaluatedItems" | "unevaluatedProperties" => value == &Value::Bool(true),
        "format" => !value
            .as_str()
            .is_some_and(|format| FORMATS.contains(&format)),
        _ => WITHOUT_EFFECT.contains(&key),
    }
}

fn check_type(value: &Value, place: &Place) -> Result<()> {
    let is_known = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let is_good = match value {
        Value::Array(list) => !list.is_empty() && list.iter().all(is_known),
        _ => is_known(value),
    };
    if is_good {
        return Ok(());
    }
    place.fail(format!(
        "must be one of {}, or a list of them",
        TYPES.join(", ")
    ))
}

fn check_enum(value: &Value, place: &Place) -> Result<()> {
    match value.as_array() {
        Some(list) if !list.is_empty() => list
            .iter()
            .try_for_each(|value| check_literal(value, place)),
        _ => place.fail("must be a list of at least one value"),
    }
}

fn check_literal(value: &Value, place: &Place) -> Result<()> {
    match value {
        Value::Number(number) if !number.is_f64() => check_bound(value, place),
        Value::Array(list) => list
            .iter()
            .try_for_each(|value| check_literal(value, place)),
        Value::Object(map) => map
            .values()
            .try_for_each(|value| check_literal(value, place)),
        _ => Ok(()),
    }
}

fn check_bound(value: &Value, place: &Place) -> Result<()> {
    match value {
        Value::Bool(_) => Ok(()), // exclusiveMinimum of draft 4
        Value::Number(number) if number.is_f64() => Ok(()),
        Value::Number(_)
            if value
                .as_i64()
                .is_some_and(|number| number.unsigned_abs() <= EXACT_INTEGER_MAX) =>
        {
            Ok(())
        }
        Value::Number(_) => place.fail("integers beyond 2^53 are not served"),
        _ => place.fail("must be a number"),
    }
}

fn check_count(value: &Value, place: &Place) -> Result<()> {
    // 10.0 is an integer to JSON, and is not to the engine.
    match value.as_u64() {
        Some(count) if count <= COUNT_MAX => Ok(()),
        _ => place.fail(format!("must be an integer from 0 to {COUNT_MAX}")),
    }
}

fn check_paired(count: usize, what: &str, place: &Place) -> Result<()> {
    if count <= PAIRED_MAX {
        return Ok(());
    }
    place.fail(format!(
        "has {count} {what}: at most {PAIRED_MAX} are served"
    ))
}

fn check_pattern(pattern: Option<&str>, place: &Place) -> Result<()> {
    match pattern {
        Some(pattern) if pattern.len() <= PATTERN_BYTES_MAX => Ok(()),
        Some(pattern) => place.fail(format!(
            "the pattern has {} bytes: at most {PATTERN_BYTES_MAX} are served",
            pattern.len()
        )),
        None => place.fail("must be a string"),
    }
}

fn check_required(value: &Value, place: &Place) -> Result<()> {
    let is_good = value
        .as_array()
        .is_some_and(|list| list.iter().all(Value::is_string));
    if is_good {
        return Ok(());
    }
    place.fail("must be a list of strings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(schema: &Value) -> String {
        match prepare(&schema.to_string()) {
            Ok(_) => panic!("{schema} was taken"),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn what_is_enforced_is_taken() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A thing", "type": "object", "required": ["a"],
            "properties": {
                "a": {"type": ["string", "null"], "maxLength": 5, "pattern": "^[a-z]+$"},
                "b": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 3},
                "minItems": {"enum": ["a name like a keyword", 1, null]},
            },
            "additionalProperties": false,
            "$defs": {"item": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10}},
        });
        let prepared = prepare(&schema.to_string()).unwrap();
        let keys: Vec<&String> = prepared["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["a", "b", "minItems"]);
        assert_eq!(prepared["x-guidance"]["whitespace_flexible"], false);
    }

    #[test]
    fn what_restricts_and_is_not_enforced_is_refused_by_its_name_and_place() {
        for key in NOT_ENFORCED {
            let message = refusal(&json!({"properties": {"a": {(*key): {}}}}));
            assert!(
                message.starts_with(&format!("#/properties/a/{key}: \"{key}\"")),
                "{message}"
            );
        }
    }

    #[test]
    fn what_restricts_nothing_is_dropped() {
        let schema = json!({"type": "array", "uniqueItems": false, "unevaluatedItems": true,
            "items": {"type": "string", "format": "uri"}, "$dynamicAnchor": "x"});
        let prepared = prepare(&schema.to_string()).unwrap();
        let expected = json!({"type": "array", "items": {"type": "string"}});
        assert_eq!(prepared["items"], expected["items"]);
        assert!(prepared.get("uniqueItems").is_none() && prepared.get("$dynamicAnchor").is_none());
    }

    #[test]
    fn broken_schemas_are_refused() {
        assert!(refusal(&json!({"type": "objekt"})).contains("#/type: must be one of"));
        assert!(refusal(&json!({"items": 3})).contains("#/items: a schema must be"));
        assert!(refusal(&json!({"required": "a"})).contains("list of strings"));
        assert!(refusal(&json!({"anyOf": []})).contains("at least one"));
        assert!(refusal(&json!({"enum": []})).contains("at least one"));
        assert!(refusal(&json!({"maxItems": 1e9})).contains("20000"));
        assert!(refusal(&json!({"minLength": -1})).contains("20000"));
        assert!(refusal(&json!({"multipleOf": 0})).contains("above 0"));
        assert!(refusal(&json!({"pattern": "a".repeat(100_000)})).contains("4096"));
        assert!(refusal(&json!({"const": 9_007_199_254_740_993_i64})).contains("2^53"));
        assert!(refusal(&json!(false)).contains("no value"));
        assert!(refusal(&json!("text")).contains("must be an object"));
        assert!(prepare("{").unwrap_err().message().contains("no JSON"));
        let deep = "{\"items\":".repeat(100) + "true" + &"}".repeat(100);
        assert!(prepare(&deep).unwrap_err().message().contains("levels"));
        let large = format!("{{\"title\": \"{}\"}}", "a".repeat(SCHEMA_BYTES_MAX));
        assert!(prepare(&large).unwrap_err().message().contains("bytes"));
    }

    #[test]
    fn references_lead_to_a_schema_of_the_same_text() {
        assert!(prepare(r##"{"$ref": "#/$defs/a", "$defs": {"a": {}}}"##).is_ok());
        assert!(refusal(&json!({"$ref": "#/$defs/a"})).contains("is not in the schema"));
        assert!(refusal(&json!({"$ref": "#"})).contains("only to further references"));
        assert!(refusal(&json!({"$ref": "http://a/b"})).contains("only references into"));
        assert!(refusal(&json!({"$ref": "#name"})).contains("only references into"));
        let ring = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
        assert!(refusal(&ring).contains("only to further references"));
    }

    #[test]
    fn options_of_one_of_are_what_they_refer_to() {
        let schema = json!({
            "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
            "$defs": {
                "cat": {"properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
                "dog": {"$ref": "#/$defs/hound"},
                "hound": {"properties": {"kind": {"const": "dog"}}, "required": ["kind"]},
            },
        });
        let prepared = prepare(&schema.to_string()).unwrap();
        assert_eq!(prepared["oneOf"][0]["properties"]["kind"]["const"], "cat");
        assert_eq!(prepared["oneOf"][1]["properties"]["kind"]["const"], "dog");
        // Options that are their own union again end all the same.
        let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"oneOf": [
            {"$ref": "#/$defs/t"}, {"$ref": "#/$defs/t"}]}}});
        assert!(refusal(&tree).starts_with("#/"));
    }
}
