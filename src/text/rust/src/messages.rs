//! A chat request as templates want it: contents as strings, tool arguments as mappings.

use serde_json::{Map, Value};

use crate::error::{Result, TextError};

/// Parses the request and rewrites its messages; see chat_template.h for the rules.
pub fn parse(request: &str) -> Result<Map<String, Value>> {
    let parsed: Value = serde_json::from_str(request)
        .map_err(|e| TextError::input(format!("the request is no JSON: {e}")))?;
    let Value::Object(mut request) = parsed else {
        return Err(TextError::input("the request is not a JSON object"));
    };
    let Some(Value::Array(messages)) = request.get_mut("messages") else {
        return Err(TextError::input("messages must be an array"));
    };
    for (index, message) in messages.iter_mut().enumerate() {
        normalize(message).map_err(|e| e.context(&format!("messages[{index}]")))?;
    }
    // As text their keys have kept the order in which the client wrote them.
    if let Some(Value::String(text)) = request.get("tools") {
        let tools = serde_json::from_str(text)
            .map_err(|e| TextError::input(format!("tools is no JSON: {e}")))?;
        request.insert("tools".to_owned(), tools);
    }
    Ok(request)
}

fn normalize(message: &mut Value) -> Result<()> {
    let Value::Object(message) = message else {
        return Err(TextError::input("must be an object"));
    };
    if !message.get("role").is_some_and(Value::is_string) {
        return Err(TextError::input("role must be a string"));
    }
    if let Some(content) = message.get_mut("content") {
        if let Value::Array(parts) = content {
            *content = Value::String(join_parts(parts)?);
        } else if !content.is_string() && !content.is_null() {
            return Err(TextError::input(
                "content must be a string, null or an array of text parts",
            ));
        }
    }
    Ok(())
}

/// The texts of the parts in order, one to a line.
fn join_parts(parts: &[Value]) -> Result<String> {
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let kind = part
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("without a type");
        match (kind, part.get("text").and_then(Value::as_str)) {
            ("text", Some(text)) => texts.push(text),
            ("text", None) => {
                return Err(TextError::input(format!(
                    "content[{index}].text must be a string"
                )))
            }
            _ => {
                return Err(TextError::input(format!(
                    "content[{index}] is a part of type {kind}; this model reads text only"
                )))
            }
        }
    }
    Ok(texts.join("\n"))
}

/// The same request with values for the calls' arguments, which arrive as JSON text; a text that is
/// no JSON stays one. None where there are none.
pub fn with_argument_values(request: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut request = request.clone();
    let mut found = false;
    for message in request.get_mut("messages")?.as_array_mut()? {
        let Some(Value::Array(calls)) = message.get_mut("tool_calls") else {
            continue;
        };
        for call in calls {
            found = parse_arguments(call) || found;
        }
    }
    found.then_some(request)
}

fn parse_arguments(call: &mut Value) -> bool {
    let arguments = match call.get_mut("function") {
        Some(function) => function.get_mut("arguments"),
        None => call.get_mut("arguments"),
    };
    let parsed = arguments
        .as_ref()
        .and_then(|arguments| serde_json::from_str(arguments.as_str()?).ok());
    match (arguments, parsed) {
        (Some(arguments), Some(parsed)) => {
            *arguments = parsed;
            true
        }
        _ => false,
    }
}

/// True when a message has content null: some templates test for none, others cannot stand it.
pub fn has_null_content(request: &Map<String, Value>) -> bool {
    messages(request).any(|message| message.get("content").is_some_and(Value::is_null))
}

/// The same request with empty strings for null contents.
pub fn without_null_content(request: &Map<String, Value>) -> Map<String, Value> {
    let mut request = request.clone();
    if let Some(Value::Array(messages)) = request.get_mut("messages") {
        for message in messages {
            if let Some(content) = message
                .get_mut("content")
                .filter(|content| content.is_null())
            {
                *content = Value::String(String::new());
            }
        }
    }
    request
}

fn messages(request: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    request
        .get("messages")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}
