//! Lines and columns of a text. Both count from 1, columns in characters; 0 is unknown.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file. Lines and columns count from 1; 0 is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct At {
    pub path: PathBuf,
    pub line: u32,
    pub column: u32,
}

/// `config.pbtxt:15:3:`, the form that editors recognise.
impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if self.column > 0 {
            write!(f, "{}:", self.column)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    pub const UNKNOWN: Place = Place { line: 0, column: 0 };

    /// The place of a byte offset. An offset beyond the text gives the place of its end.
    pub fn at_offset(text: &str, offset: usize) -> Place {
        let before = text.char_indices().take_while(|(i, _)| *i < offset);
        let (mut line, mut column) = (1u32, 1u32);
        for (_, c) in before {
            if c == '\n' {
                (line, column) = (line.saturating_add(1), 1);
            } else {
                column = column.saturating_add(1);
            }
        }
        Place { line, column }
    }

    pub fn at(self, path: &Path) -> At {
        At { path: path.to_owned(), line: self.line, column: self.column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let text = "a: 1\nmé: 2\n";
        assert_eq!(Place::at_offset(text, 0), Place { line: 1, column: 1 });
        assert_eq!(Place::at_offset(text, text.find(": 2").unwrap()), Place { line: 2, column: 3 });
        assert_eq!(Place::at_offset(text, 1000), Place { line: 3, column: 1 });
    }
}
