//! The byte alphabet of GPT-2 tokenizers: every byte is spelled as one printable character.

/// The character that spells each byte: printable Latin-1 bytes are themselves, the other 68 bytes
/// are U+0100 and up, in order.
pub fn alphabet() -> [char; 256] {
    let mut table = ['\0'; 256];
    let mut next = 0x100u32;
    for byte in 0..=255u8 {
        table[byte as usize] = match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => byte as char,
            _ => {
                next += 1;
                char::from_u32(next - 1).expect("below U+0144")
            }
        };
    }
    table
}

/// Turns the spelling of a token back into its bytes.
pub struct ByteLevel {
    byte_of: [Option<u8>; 0x144],
}

impl ByteLevel {
    pub fn new() -> Self {
        let mut byte_of = [None; 0x144];
        for (byte, spelled) in alphabet().into_iter().enumerate() {
            byte_of[spelled as usize] = Some(byte as u8);
        }
        ByteLevel { byte_of }
    }

    /// A character outside of the alphabet stands for itself.
    pub fn decode(&self, spelled: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(spelled.len());
        for c in spelled.chars() {
            match self.byte_of.get(c as usize).copied().flatten() {
                Some(byte) => bytes.push(byte),
                None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        bytes
    }
}

/// The byte of a byte-fallback token: `<0x0A>` is 10.
pub fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The ids of the byte-fallback tokens of a vocabulary, which need not have all of them.
pub struct ByteIds([Option<u32>; 256]);

impl Default for ByteIds {
    fn default() -> Self {
        ByteIds([None; 256])
    }
}

impl ByteIds {
    /// The first id of a byte stays.
    pub fn set(&mut self, byte: u8, id: u32) {
        self.0[byte as usize].get_or_insert(id);
    }

    /// Appends the bytes of the text, or nothing (and returns false) when one of them has no token.
    pub fn spell(&self, text: &str, ids: &mut Vec<u32>) -> bool {
        let before = ids.len();
        for byte in text.bytes() {
            match self.0[byte as usize] {
                Some(id) => ids.push(id),
                None => {
                    ids.truncate(before);
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_a_bijection_that_decode_undoes() {
        let table = alphabet();
        assert_eq!(table[b' ' as usize], 'Ġ');
        assert_eq!(table[b'\n' as usize], 'Ċ');
        let all: String = table.iter().collect();
        assert_eq!(
            ByteLevel::new().decode(&all),
            (0..=255).collect::<Vec<u8>>()
        );
    }

    #[test]
    fn only_exact_byte_tokens_are_bytes() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0xfF>"), Some(255));
        for text in ["<0x0A", "<0x+A>", "<0x00A>", "0x0A", "<0xG0>", ""] {
            assert_eq!(fallback_byte(text), None, "{text}");
        }
    }
}
