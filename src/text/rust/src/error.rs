//! Failures of the world: a message for whoever gave the input.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextError {
    /// Bad input; the message says what and where.
    Input(String),
    /// The chat template's own `raise_exception`, with its text.
    Refused(String),
}

impl TextError {
    pub fn input(message: impl Into<String>) -> Self {
        TextError::Input(message.into())
    }

    /// The same, with "context: " before the message.
    pub fn context(self, context: &str) -> Self {
        match self {
            TextError::Input(message) => TextError::Input(format!("{context}: {message}")),
            refused => refused,
        }
    }

    pub fn message(&self) -> &str {
        match self {
            TextError::Input(message) | TextError::Refused(message) => message,
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for TextError {}

pub type Result<T> = std::result::Result<T, TextError>;
